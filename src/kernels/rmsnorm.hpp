#pragma once

#include "kernels/types.hpp"

/// RMSNorm (Zhang & Sennrich 2019): y = x rstd gain, rstd = 1 / sqrt(mean(x^2) + 1e-5) of each row.
namespace minitaw::kernels {

/// y [T, H], rstd [T]; x [T, H], gain [H]. `copy` [T, H], if not empty, receives x in the same pass.
template <class E>
void rmsnorm_forward(const ExecutionSpace& exec, Matrix<E> y, Vector<float> rstd, Matrix<E> copy,
                     MatrixIn<E> x, VectorIn<E> gain);

/// y again, from an x whose rstd is known.
template <class E>
void rmsnorm_rebuild(const ExecutionSpace& exec, Matrix<E> y, MatrixIn<E> x, Vector<const float> rstd,
                     VectorIn<E> gain);

/// Runs of rows that rmsnorm_backward takes: as many as a device works on at a time; on a host 256, so that
/// sums do not depend on the number of threads. At most `rows` and most_rmsnorm_chunks.
inline constexpr std::int64_t most_rmsnorm_chunks = 512;
[[nodiscard]] std::int64_t rmsnorm_chunks(std::int64_t rows);

/// dx = residual + gradient through the norm; residual [T, H] may be empty. dx may be dy or residual itself.
/// gain_partial [rmsnorm_chunks(T), H]: sums over equal runs of rows, for rmsnorm_backward_gain.
template <class E>
void rmsnorm_backward(const ExecutionSpace& exec, Matrix<E> dx, Matrix<float> gain_partial, MatrixIn<E> dy,
                      MatrixIn<E> residual, MatrixIn<E> x, Vector<const float> rstd, VectorIn<E> gain);

/// dgain [H] is, or with `accumulate` adds to, the sum over the chunks.
template <class G>
void rmsnorm_backward_gain(const ExecutionSpace& exec, Vector<G> dgain, Matrix<const float> gain_partial,
                           bool accumulate);

}  // namespace minitaw::kernels
