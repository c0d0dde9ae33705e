// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include "kernels/settings.hpp"

/// The vendor's libraries behind plain interfaces, without Kokkos: only the host's compiler reads
/// cudnn-frontend.
namespace minitaw::kernels::detail::cuda {
/// Throws std::runtime_error "what: the library's own words" unless `code` is success.
inline void check(cudaError_t code, const std::string& what) {
  if (code != cudaSuccess)
    throw std::runtime_error(what + ": " + cudaGetErrorString(code));
}

/// Workspace that NVIDIA recommends for Hopper: enough for every algorithm that splits the summed
/// dimension.
inline constexpr std::size_t cublas_workspace_bytes = std::size_t{32} << 20;

/// The choice of an algorithm depends on this. c [m, n] = op(a) op(b) + beta c, all row-major and
/// without gaps.
struct ProductKey {
  std::int64_t m, n, k;
  bool transposed_a, transposed_b, adds;
  cudaDataType element, result;
  std::uint32_t alignment_a, alignment_b,
      alignment_c;  ///< bytes that divide the addresses, at most 256

  auto operator<=>(const ProductKey&) const = default;
};

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
  CublasLt& operator=(CublasLt&&) = delete;

  /// Enqueues the product on `stream`. False: the library has none; throws std::runtime_error for
  /// all else.
  bool multiply(
      cudaStream_t stream, void* workspace, const ProductKey& key, const Product& product);

  /// While on, the first product of a kind times every algorithm and keeps the fastest; with beta 1
  /// it is of no use.
  void choose_by_time(bool on) { by_time_ = on; }

  /// "bf16 to fp32, m 4096, n 4096, k 16384, transposed a, beta 1: algorithm 3 of 8, 4.1 % faster
  /// than the first", ...
  std::vector<std::string> choices() const;

private:
  struct Plan;

  cublasLtHandle_t handle_ = nullptr;
  bool by_time_ = false;
  std::map<ProductKey, std::unique_ptr<Plan>> plans_;
};

/// "13.0.2"
std::string cublaslt_version();
/// Why cuDNN cannot compute this part of causal attention here in bf16; empty if it can. Remembers
/// its answers.
[[nodiscard]] std::string reason_against_cudnn(const AttentionPart& part);

/// The library's handle of one queue and its plans. Pointers are those of
/// kernels::attention_forward and _backward, bf16 but for lse, in place in the fused projection:
/// nothing is permuted. But lse is that of the rows and heads of the part, without gaps. Failures
/// throw std::runtime_error.
class CudnnAttention {
public:
  explicit CudnnAttention(cudaStream_t stream);
  ~CudnnAttention();
  CudnnAttention& operator=(CudnnAttention&&) = delete;

  /// Builds the plans of a part (seconds, once). Returns their bytes of workspace: see
  /// model::library_estimate().
  std::size_t prepare(const AttentionPart& part);
  /// `from`: keys and values, wherever they are.
  void forward(const AttentionPart& part,
      void* y,
      float* lse,
      const void* qkv,
      const KeyValues<const void>& from,
      void* workspace);
  /// gradients [B, run.end(), 2 heads of the part, d]: of keys, then values; if they are not in
  /// dqkv.
  void backward(const AttentionPart& part,
      void* dqkv,
      void* gradients,
      const void* dy,
      const void* qkv,
      const KeyValues<const void>& from,
      const void* y,
      const float* lse,
      void* workspace);

private:
  struct Library;
  std::unique_ptr<Library> library_;
};

/// "9.19.0"
std::string cudnn_version();
/// "1.19.0"
std::string cudnn_frontend_version();
}  // namespace minitaw::kernels::detail::cuda
