#include "kernels/add.hpp"

#include "kernels/detail/scalar.hpp"

namespace minitaw::kernels {

namespace {

using namespace detail;

template <class E>
struct Add {
  float* total;
  const E* contribution;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const { total[i] += load(contribution[i]); }
};

}  // namespace

template <class E>
void add(const ExecutionSpace& exec, Vector<float> total, VectorIn<E> contribution) {
  using Range = Kokkos::RangePolicy<ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for("minitaw::add", Range(exec, 0, static_cast<std::int64_t>(total.extent(0))),
                       Add<E>{total.data(), contribution.data()});
}

template void add<float>(const ExecutionSpace&, Vector<float>, VectorIn<float>);
template void add<Bf16>(const ExecutionSpace&, Vector<float>, VectorIn<Bf16>);

}  // namespace minitaw::kernels
