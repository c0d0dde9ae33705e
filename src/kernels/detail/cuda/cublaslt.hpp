#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <string>

#include "kernels/detail/cuda/workspace.hpp"

/// cuBLASLt behind a plain interface: row-major products with plans that are made once.
namespace minitaw::kernels::detail::cuda {

/// What NVIDIA advises for Hopper: enough for every algorithm that splits the summed dimension.
inline constexpr std::size_t cublas_workspace_bytes = std::size_t{32} << 20;

/// Everything that the choice of an algorithm depends on. c [m, n] = op(a) op(b) + beta c, all row-major and
/// without gaps between rows.
struct ProductKey {
  std::int64_t m, n, k;
  bool transposed_a, transposed_b, adds;
  cudaDataType element, result;
  int alignment_a, alignment_b, alignment_c;  ///< bytes that divide the addresses, at most 256

  auto operator<=>(const ProductKey&) const = default;
};

/// Addresses of a product, and its beta.
struct Product {
  const void* a;
  const void* b;
  void* c;
  float beta;
};

/// The library's handle of one queue, and the plans of all products that it has multiplied so far.
class CublasLt {
public:
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Enqueues the product on `stream`. False if the library has no algorithm for it; throws
  /// std::runtime_error for every other failure.
  bool multiply(cudaStream_t stream, const Workspace& workspace, const ProductKey& key,
                const Product& product);

private:
  struct Plan {
    cublasLtMatmulDescOpaque_t operation{};
    cublasLtMatrixLayoutOpaque_t first{}, second{}, result{};
    cublasLtMatmulAlgo_t algorithm{};
    bool possible = false;
  };
  [[nodiscard]] Plan make_plan(const ProductKey& key);
  [[nodiscard]] Plan& plan_of(const ProductKey& key);

  cublasLtHandle_t handle_ = nullptr;
  std::map<ProductKey, Plan> plans_;
};

/// "13.0.2"
[[nodiscard]] std::string cublaslt_version();

}  // namespace minitaw::kernels::detail::cuda
