#include "kernels/add.hpp"

#include "kernels/detail/flat.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

template <class E, bool accumulate>
struct Add {
  float* total;
  const E* contribution;

  template <int n>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    Floats<n> sum = load_pack<n>(contribution + i, 0);
    if constexpr (accumulate) {
      const Floats<n> before = load_pack<n>(total + i, 0);
      for (int j = 0; j < n; ++j) sum[j] += before[j];
    }
    store_pack<n>(total + i, 0, sum);
  }
};

}  // namespace

template <class E>
void add(const ExecutionSpace& exec, Vector<float> total, VectorIn<E> contribution, bool accumulate) {
  const auto run = [&](auto adds) {
    flat_for<E>("minitaw::add", exec, static_cast<std::int64_t>(total.extent(0)),
                {total.data(), contribution.data()}, Add<E, adds>{total.data(), contribution.data()});
  };
  accumulate ? run(std::true_type()) : run(std::false_type());
}

template void add<float>(const ExecutionSpace&, Vector<float>, VectorIn<float>, bool);
template void add<Bf16>(const ExecutionSpace&, Vector<float>, VectorIn<Bf16>, bool);

}  // namespace minitaw::kernels
