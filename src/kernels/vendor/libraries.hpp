// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "base/vendor.hpp"
#include "kernels/settings.hpp"

/// The vendor's libraries behind plain interfaces, without Kokkos: only the host's compiler reads
/// cudnn-frontend.
namespace minitaw::kernels::detail::vendor {
using minitaw::vendor::check, minitaw::vendor::Stream;

/// Workspace of products that NVIDIA recommends for Hopper: enough for every algorithm that splits
/// the summed dimension.
inline constexpr std::size_t product_workspace_bytes = std::size_t{32} << 20;

/// The choice of an algorithm depends on this. c [m, n] = op(a) op(b) + beta c, all row-major and
/// without gaps.
struct ProductKey {
  std::int64_t m, n, k;
  bool transposed_a, transposed_b, adds;
  bool narrow, narrow_result;  ///< factors, result are bf16; else fp32
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

/// cuBLASLt or rocBLAS: the library's handle of one stream.
class Products {
public:
  explicit Products(Stream stream);
  ~Products();
  Products& operator=(Products&&) = delete;

  /// Enqueues the product. False: the library has none; throws std::runtime_error for all else.
  bool multiply(const ProductKey& key, const Product& product, void* workspace);

  /// While on, the first product of a kind times every algorithm and keeps the fastest; with beta 1
  /// it is of no use. rocBLAS chooses by itself.
  void choose_by_time(bool on);

  /// "bf16 to fp32, m 4096, n 4096, k 16384, transposed a, beta 1: algorithm 3 of 8, 4.1 % faster
  /// than the first", ...
  std::vector<std::string> choices() const;

private:
  struct Library;
  std::unique_ptr<Library> library_;
};

/// Name and version: "cublasLt", "13.0.2".
std::pair<std::string, std::string> products_version();
/// Why cuDNN cannot compute this part of causal attention here in bf16; empty if it can. Remembers
/// its answers.
[[nodiscard]] std::string reason_against_cudnn(const AttentionPart& part);

/// The library's handle of one queue and its plans. Pointers are those of
/// kernels::attention_forward and _backward, bf16 but for lse, in place in the fused projection:
/// nothing is permuted. But lse is that of the rows and heads of the part, without gaps. Failures
/// throw std::runtime_error.
class CudnnAttention {
public:
  explicit CudnnAttention(Stream stream);
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
}  // namespace minitaw::kernels::detail::vendor
