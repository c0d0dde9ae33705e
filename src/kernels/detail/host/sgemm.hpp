#pragma once

/// BLAS by its Fortran name, which every BLAS has.
extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);

namespace minitaw::kernels::detail {

/// A row-major operand: where it starts, elements from one row to the next, and whether its transpose is
/// meant.
struct Operand {
  const float* data;
  int stride;
  bool transposed = false;
};

/// c [m, n] (row-major) = alpha op(a) op(b) + beta c. Column-major BLAS sees the transposes, so a and b
/// change places.
inline void sgemm(int m, int n, int k, float alpha, Operand a, Operand b, float beta, float* c, int stride) {
  const char op_a = a.transposed ? 'T' : 'N', op_b = b.transposed ? 'T' : 'N';
  sgemm_(&op_b, &op_a, &n, &m, &k, &alpha, b.data, &b.stride, a.data, &a.stride, &beta, c, &stride);
}

}  // namespace minitaw::kernels::detail
