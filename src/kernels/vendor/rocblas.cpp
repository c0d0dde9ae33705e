// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <rocblas/rocblas.h>
#include "kernels/vendor/libraries.hpp"

namespace minitaw::kernels::detail::vendor {
namespace {
void check(rocblas_status status, const char* what) {
  if (status != rocblas_status_success)
    throw std::runtime_error(
        fmt::format("rocBLAS: {}: {}", what, rocblas_status_to_string(status)));
}

rocblas_datatype type_of(bool narrow) {
  return narrow ? rocblas_datatype_bf16_r : rocblas_datatype_f32_r;
}
}  // namespace

struct Products::Library {
  rocblas_handle handle = nullptr;
  void* workspace = nullptr;  ///< that the library has been given
};

/// Sums without atomics, which have no order.
Products::Products(Stream stream) : library_(new Library) {
  check(rocblas_create_handle(&library_->handle), "starting the library");
  check(rocblas_set_stream(library_->handle, stream), "choosing a stream");
  check(rocblas_set_atomics_mode(library_->handle, rocblas_atomics_not_allowed), "atomics");
}

Products::~Products() {
  (void)rocblas_destroy_handle(library_->handle);
}

void Products::choose_by_time(bool /*on*/) {}

std::vector<std::string> Products::choices() const {
  return {};
}

/// The transpose of c is op(b)^T op(a)^T, and column-major eyes see a and b transposed already.
bool Products::multiply(const ProductKey& key, const Product& product, void* workspace) {
  const auto operation = [](bool transposed) {
    return transposed ? rocblas_operation_transpose : rocblas_operation_none;
  };
  const rocblas_datatype factors = type_of(key.narrow), result = type_of(key.narrow_result);
  const float alpha = 1;
  if (workspace != library_->workspace)
    check(rocblas_set_workspace(library_->handle, workspace, product_workspace_bytes), "workspace");
  library_->workspace = workspace;
  const rocblas_status status = rocblas_gemm_ex(library_->handle,
      operation(key.transposed_b),
      operation(key.transposed_a),
      key.n,
      key.m,
      key.k,
      &alpha,
      product.b,
      factors,
      key.transposed_b ? key.k : key.n,
      product.a,
      factors,
      key.transposed_a ? key.m : key.k,
      &product.beta,
      product.c,
      result,
      key.n,
      product.c,
      result,
      key.n,
      rocblas_datatype_f32_r,
      rocblas_gemm_algo_standard,
      0,
      0);
  if (status == rocblas_status_not_implemented)
    return false;
  check(status, "a matrix product");
  return true;
}

std::pair<std::string, std::string> products_version() {
  std::array<char, 64> text{};
  check(rocblas_get_version_string(text.data(), text.size()), "its version");
  return {"rocBLAS", text.data()};
}
}  // namespace minitaw::kernels::detail::vendor
