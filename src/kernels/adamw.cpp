#include "kernels/adamw.hpp"

#include "kernels/detail/flat.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

/// The master weights; with `rounded` also their copy in the compute type.
template <class E, bool rounded>
struct Update {
  E* weights;
  float* master;
  float* moment1;
  float* moment2;
  const float* gradient;
  AdamWStep step;

  template <int n>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    const Floats<n> g = load_pack<n>(gradient + i, 0);
    Floats<n> w = load_pack<n>(master + i, 0), m1 = load_pack<n>(moment1 + i, 0),
              m2 = load_pack<n>(moment2 + i, 0);
    for (int j = 0; j < n; ++j) one(w[j], m1[j], m2[j], g[j]);
    store_pack<n>(moment1 + i, 0, m1);
    store_pack<n>(moment2 + i, 0, m2);
    store_pack<n>(master + i, 0, w);
    if constexpr (rounded) store_pack<n>(weights + i, 0, w);
  }

  KOKKOS_FUNCTION void one(float& w, float& m1, float& m2, float g) const {
    m1 = step.beta1 * m1 + (1.0F - step.beta1) * g;
    m2 = step.beta2 * m2 + (1.0F - step.beta2) * g * g;
    const float direction = m1 * step.correction1 / (Kokkos::sqrt(m2 * step.correction2) + step.epsilon);
    w -= step.learning_rate * (direction + step.decay * w);
  }
};

}  // namespace

template <class E>
void adamw(const ExecutionSpace& exec, Vector<E> weights, Vector<float> master, Vector<float> moment1,
           Vector<float> moment2, Vector<const float> gradient, const AdamWStep& step) {
  const auto run = [&](auto rounded) {
    flat_for<E>("minitaw::adamw", exec, static_cast<std::int64_t>(weights.extent(0)),
                {weights.data(), master.data(), moment1.data(), moment2.data(), gradient.data()},
                Update<E, rounded>{weights.data(), master.data(), moment1.data(), moment2.data(),
                                   gradient.data(), step});
  };
  if constexpr (std::is_same_v<E, float>)
    if (weights.data() == master.data())
      return run(std::false_type());  // one array: the loop stays vector code
  run(std::true_type());
}

template void adamw<float>(const ExecutionSpace&, Vector<float>, Vector<float>, Vector<float>, Vector<float>,
                           Vector<const float>, const AdamWStep&);
template void adamw<Bf16>(const ExecutionSpace&, Vector<Bf16>, Vector<float>, Vector<float>, Vector<float>,
                          Vector<const float>, const AdamWStep&);

}  // namespace minitaw::kernels
