#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace minitaw::model {

/// Precision of weights, activations and gradients in compute; master weights, optimiser state and gradient
/// totals are always fp32.
enum class Dtype { fp32, bf16 };

/// What the forward pass keeps for the backward pass of a block.
enum class Recompute {
  block,           ///< the block input only; everything else is computed again
  keep_attention,  ///< the block input, the attention output and its row statistics
  none,            ///< everything the backward pass reads
};

[[nodiscard]] std::size_t bytes_of(Dtype dtype);
[[nodiscard]] std::string name_of(Dtype dtype);
[[nodiscard]] std::string name_of(Recompute recompute);

/// A LLaMA-style decoder and the micro-batch that runs through it.
struct Shape {
  int layers = 0;
  std::int64_t hidden = 0;          ///< H
  int heads = 0;                    ///< query heads
  int kv_heads = 0;                 ///< key/value heads; divides heads
  std::vector<std::int64_t> ffn{};  ///< F of each block, `layers` entries
  std::int64_t vocab = 0;           ///< V
  std::int64_t seq = 0;             ///< S, tokens per sequence
  std::int64_t micro_batch = 0;     ///< B, sequences per micro-batch
  Dtype dtype = Dtype::fp32;
  Recompute recompute = Recompute::block;

  [[nodiscard]] std::int64_t head_dim() const { return hidden / heads; }
  /// Columns of the fused QKV projection: (heads + 2 kv_heads) head_dim.
  [[nodiscard]] std::int64_t qkv() const { return (heads + 2 * std::int64_t{kv_heads}) * head_dim(); }
  [[nodiscard]] std::int64_t tokens() const { return seq * micro_batch; }
};

/// Throws InputError, naming key and value, for a shape that cannot be computed: a size below 1, heads that
/// do not divide hidden, kv_heads that do not divide heads, an odd head dimension (RoPE rotates pairs), an
/// ffn list of the wrong length, a matrix side beyond 2^31 - 1 (BLAS), or buffers that a 64-bit size cannot
/// count.
void check(const Shape& shape);

/// Model FLOPs per token of forward and backward, recomputation never counted.
struct Flops {
  double matmul = 0;            ///< 6 (block matmul parameters + head)
  double attention_causal = 0;  ///< 6 L S A, A = heads head_dim
  double attention_full = 0;    ///< 12 L S A
};
[[nodiscard]] Flops flops_per_token(const Shape& shape);

/// Weights of the four linear layers of a block.
[[nodiscard]] std::int64_t block_matmul_parameters(const Shape& shape, int layer);

/// All trained parameters, ends included.
[[nodiscard]] std::int64_t parameters(const Shape& shape);

}  // namespace minitaw::model
