#include "kernels/adamw.hpp"

#include "kernels/detail/scalar.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

template <class E>
struct Update {
  E* weights;
  float* master;
  float* moment1;
  float* moment2;
  const float* gradient;
  AdamWStep step;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const float g = gradient[i];
    const float m1 = step.beta1 * moment1[i] + (1.0F - step.beta1) * g;
    const float m2 = step.beta2 * moment2[i] + (1.0F - step.beta2) * g * g;
    const float direction = m1 * step.correction1 / (Kokkos::sqrt(m2 * step.correction2) + step.epsilon);
    moment1[i] = m1;
    moment2[i] = m2;
    const float weight = master[i] - step.learning_rate * (direction + step.decay * master[i]);
    master[i] = weight;
    weights[i] = store<E>(weight);
  }
};

}  // namespace

template <class E>
void adamw(const ExecutionSpace& exec, Vector<E> weights, Vector<float> master, Vector<float> moment1,
           Vector<float> moment2, Vector<const float> gradient, const AdamWStep& step) {
  using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(
      "minitaw::adamw", Range(exec, 0, static_cast<std::int64_t>(weights.extent(0))),
      Update<E>{weights.data(), master.data(), moment1.data(), moment2.data(), gradient.data(), step});
}

template void adamw<float>(const ExecutionSpace&, Vector<float>, Vector<float>, Vector<float>, Vector<float>,
                           Vector<const float>, const AdamWStep&);
template void adamw<Bf16>(const ExecutionSpace&, Vector<Bf16>, Vector<float>, Vector<float>, Vector<float>,
                          Vector<const float>, const AdamWStep&);

}  // namespace minitaw::kernels
