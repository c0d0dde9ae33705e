#include "kernels/add.hpp"

#include "kernels/detail/flat.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

template <class E>
struct Add {
  float* total;
  const E* contribution;

  template <int n>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    Floats<n> sum = load_pack<n>(total + i, 0);
    const Floats<n> more = load_pack<n>(contribution + i, 0);
    for (int j = 0; j < n; ++j) sum[j] += more[j];
    store_pack<n>(total + i, 0, sum);
  }
};

}  // namespace

template <class E>
void add(const ExecutionSpace& exec, Vector<float> total, VectorIn<E> contribution) {
  flat_for<E>("minitaw::add", exec, static_cast<std::int64_t>(total.extent(0)),
              {total.data(), contribution.data()}, Add<E>{total.data(), contribution.data()});
}

template void add<float>(const ExecutionSpace&, Vector<float>, VectorIn<float>);
template void add<Bf16>(const ExecutionSpace&, Vector<float>, VectorIn<Bf16>);

}  // namespace minitaw::kernels
