#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/runtime.hpp"

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

/// The library's handle of one queue, and the plans of all products that it has multiplied so far. The
/// library offers several algorithms for a product, the one that it takes for fastest first.
class CublasLt {
public:
  CublasLt();
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  /// Enqueues the product on `stream`. False if the library has no algorithm for it; throws
  /// std::runtime_error for every other failure.
  bool multiply(cudaStream_t stream, void* workspace, const ProductKey& key, const Product& product);

  /// While on, the first product of a kind times every algorithm on its operands, and keeps the fastest: its
  /// result is then of no use if beta is 1. Waits for the stream.
  void choose_by_time(bool on) { by_time_ = on; }
  /// "bf16 to fp32, m 4096, n 4096, k 16384, transposed a, beta 1: algorithm 3 of 8, 4.1 % faster than the
  /// first", of each kind of product whose algorithm was chosen by time.
  [[nodiscard]] std::vector<std::string> choices() const;

private:
  /// A type with a name: nvcc 13 does not survive a vector of the library's, which has none.
  struct Algorithm {
    cublasLtMatmulAlgo_t value;
  };
  using Algorithms = std::vector<Algorithm>;
  struct Plan {
    cublasLtMatmulDescOpaque_t operation{};
    cublasLtMatrixLayoutOpaque_t first{}, second{}, result{};
    cublasLtMatmulAlgo_t algorithm{};
    bool possible = false;
    std::string choice;
  };
  [[nodiscard]] Plan make_plan(const ProductKey& key, Algorithms& offered) const;
  void choose(Plan& plan, const Algorithms& offered, cudaStream_t stream, void* workspace,
              const Product& product) const;
  /// Milliseconds, or nothing if the library cannot run it.
  [[nodiscard]] std::optional<float> time(Plan& plan, cudaStream_t stream, void* workspace,
                                          const Product& product) const;
  [[nodiscard]] cublasStatus_t enqueue(Plan& plan, cudaStream_t stream, void* workspace,
                                       const Product& product) const;

  cublasLtHandle_t handle_ = nullptr;
  bool by_time_ = false;
  std::map<ProductKey, Plan> plans_;
};

/// "13.0.2"
[[nodiscard]] std::string cublaslt_version();

}  // namespace minitaw::kernels::detail::cuda
