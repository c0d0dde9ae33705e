#include "kernels/detail/host/sgemm.hpp"
#include "kernels/detail/matmul_kernels.hpp"

namespace minitaw::kernels::detail::host {

/// BLAS runs on Kokkos's own OpenMP threads, one call at a time, so the order of `exec` is the order of the
/// calls.
void matmul(const ExecutionSpace&, Matrix<float> c, Matrix<const float> a, Op op_a, Matrix<const float> b,
            Op op_b, float beta) {
  const auto extent = [](const auto& view, int dim) { return static_cast<int>(view.extent(dim)); };
  const bool turn_a = op_a == Op::transposed, turn_b = op_b == Op::transposed;
  sgemm(extent(c, 0), extent(c, 1), extent(a, turn_a ? 0 : 1), 1, {a.data(), extent(a, 1), turn_a},
        {b.data(), extent(b, 1), turn_b}, beta, c.data(), extent(c, 1));
}

}  // namespace minitaw::kernels::detail::host
