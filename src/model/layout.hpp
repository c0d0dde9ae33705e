// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstddef>
#include <string>
#include <vector>
#include "base/bf16.hpp"
#include "base/range.hpp"

namespace minitaw::model {
/// Precision of compute. Master weights, optimiser state and gradient accumulators are always fp32.
enum class Dtype { fp32, bf16 };

/// Activations that the forward pass of a block keeps for the backward pass; the rest is
/// recomputed.
enum class Recompute {
  block,           ///< the block input only; everything else is computed again
  keep_attention,  ///< the block input, the attention output and its row statistics
  none,            ///< everything the backward pass reads
};

std::size_t bytes_of(Dtype dtype);
std::string name_of(Dtype dtype);
std::string name_of(Recompute recompute);

/// A LLaMA-style decoder and the micro-batch that runs through it.
struct Shape {
  int layers = 0;
  std::int64_t hidden = 0;       ///< H
  int heads = 0;                 ///< query heads
  int kv_heads = 0;              ///< key/value heads; divides heads
  std::int64_t ffn = 0;          ///< F
  std::int64_t vocab = 0;        ///< V
  std::int64_t seq = 0;          ///< S, tokens per sequence
  std::int64_t micro_batch = 0;  ///< B, sequences per micro-batch
  Dtype dtype = Dtype::fp32;
  Recompute recompute = Recompute::block;
  bool fp32_gradients = false;  ///< those that move between ranks are fp32, whatever dtype is
  bool tied = false;            ///< the LM head is the embedding: one matrix, not two
  /// Of every sequence this rank computes chunks `index` and 2 count - 1 - index of 2 count equal
  /// ones: a head and a tail, so that all `count` ranks of a context group have as many pairs of
  /// queries and keys (design of Llama 3, arXiv 2407.21783, section 3.3.2).
  Part context{};
  /// Equal parts by key/value heads in which a context group gathers the keys of a block: the next
  /// one is under way while one is attended to.
  int key_parts = 1;
  /// Of the gradients of keys and values that a context group, or later slices, add up: fp32,
  /// whatever dtype is.
  bool fp32_key_gradients = false;
  /// k: slices in which a pipeline passes a sequence, consecutive runs of its tokens.
  int slices = 1;
  bool even_slices = false;  ///< of equal length; else of equal cost
  /// Tokens of every sequence that this shape is about: those of a slice; none: all.
  Range span{};
  std::int64_t given_head_dim = 0;  ///< d; 0: hidden / heads

  /// Of gradients that move between ranks on their way to an accumulator.
  Dtype grad_dtype() const { return fp32_gradients ? Dtype::fp32 : dtype; }

  std::int64_t head_dim() const { return given_head_dim > 0 ? given_head_dim : hidden / heads; }

  /// h d, columns of attention's output.
  std::int64_t attention_width() const { return heads * head_dim(); }

  /// Columns of the fused QKV projection: (heads + 2 kv_heads) head_dim.
  std::int64_t qkv() const { return (heads + 2 * std::int64_t{kv_heads}) * head_dim(); }

  /// Tokens of each sequence that this shape is about, of all ranks that share it.
  std::int64_t span_seq() const { return span.count > 0 ? span.count : seq; }

  /// Those of them that this rank computes.
  std::int64_t local_seq() const { return span_seq() / context.count; }

  /// T: tokens of a micro-batch that this rank computes, sequence by sequence.
  std::int64_t tokens() const { return local_seq() * micro_batch; }

  bool shares_sequences() const { return context.count > 1; }

  bool has_slices() const { return slices > 1; }

  /// Keys and values are in buffers of their own, because they are those of other ranks or slices
  /// too.
  bool keys_apart() const { return shares_sequences() || has_slices(); }

  /// Tokens of a chunk of a sequence, or of a slice; all of it where sequences are not shared.
  std::int64_t chunk() const {
    return shares_sequences() ? span_seq() / (2 * context.count) : span_seq();
  }

  /// Elements of a key and a value of every key/value head.
  std::int64_t key_values() const { return 2 * kv_heads * head_dim(); }

  Dtype key_gradient_dtype() const { return fp32_key_gradients ? Dtype::fp32 : dtype; }

  friend bool operator==(const Shape&, const Shape&) = default;
};

/// A run of consecutive tokens of every sequence: rows [row, row + count) of those that a rank has
/// of it; the first one has this position in the sequence.
struct SequenceRun {
  std::int64_t row = 0, count = 0, position = 0;
};

/// The runs that a rank computes, in the order of its rows: all of a sequence or slice, or a head
/// and a tail.
std::vector<SequenceRun> runs_of(const Shape& shape);

/// The shapes of the slices of a sequence, in its order. Their borders divide the FLOPs of a block
/// evenly, as later tokens attend to more (or the tokens, if slices are even): a prefix of x tokens
/// costs P x + A x^2, with P weights of a block's matrices and A = heads head_dim. Borders are
/// multiples of up to 128 tokens where slices are long enough, always of 2 n.
std::vector<Shape> slices_of(const Shape& shape);
/// The shape with the most tokens at a time: the longest slice, or all.
Shape largest_slice(const Shape& shape);

/// Throws InputError, naming key and value, for a shape that cannot be computed: a size below 1,
/// heads that do not divide hidden where d is not given, kv_heads that do not divide heads, an odd
/// head dimension (RoPE rotates pairs), a sequence that does not fall into chunks or slices, a
/// matrix side beyond 2^31 - 1 (BLAS), or buffers that a 64-bit size cannot count.
void check(const Shape& shape);

/// Model FLOPs per token of forward and backward, recomputation never counted: 6 (matmul parameters
/// of blocks and head) + 6 L S heads head_dim of causal attention.
double flops_per_token(const Shape& shape);
/// Weights of the four linear layers of a block.
std::int64_t block_matmul_parameters(const Shape& shape);
std::int64_t parameters(const Shape& shape);

/// Calls function(E{}) with the compute type E of `dtype`: where the run-time choice becomes a
/// template's.
template <class Function>
void with_element(Dtype dtype, const Function& function) {
  if (dtype == Dtype::fp32)
    function(float{});
  else
    function(Bf16{});
}

/// Role of a tensor. The value keys the random numbers of its initial weights: never renumber.
enum class Role { norm1, wqkv, wo, norm2, w13, w2, embedding, norm, head };
inline constexpr int roles_per_block = 6;

/// One weight tensor inside a flat buffer, row-major rows x cols. A vector is rows x 1.
struct Tensor {
  std::string name;         ///< "layers.3.wqkv", "embedding", "norm", "head"
  int layer = -1;           ///< block index; -1 for the embeddings
  std::int64_t rows = 0;    ///< output features (or elements of a vector)
  std::int64_t cols = 0;    ///< input features (1 for a vector)
  std::int64_t offset = 0;  ///< elements from the start of the flat buffer
  Role role = Role::norm1;

  std::int64_t size() const { return rows * cols; }

  bool is_gain() const { return role == Role::norm1 || role == Role::norm2 || role == Role::norm; }
};

/// Every tensor starts at a multiple of so many elements, for vector loads. The padding holds zeros
/// and travels along.
inline constexpr std::int64_t alignment = 64;

struct Flat {
  std::int64_t elements = 0;  ///< padding included
  std::vector<Tensor> tensors;
};

/// A run of consecutive blocks in one flat buffer. Per block, in this order:
///   norm1 [H], wqkv [(h + 2 h_kv) d, H], wo [H, h d], norm2 [H], w13 [2 F, H] (gate, then up
///   rows), w2 [H, F]
/// Linear weights are stored [out, in], as in y = x W^T.
struct Shard : Flat {
  int layers = 0;

  /// `block` counts from 0 inside the shard; `role` is one of the block's own.
  const Tensor& tensor(int block, Role role) const {
    return tensors[block * roles_per_block + static_cast<int>(role)];
  }
};

/// Embedding [V, H], final norm [H] and, unless it is tied to the embedding, head [V, H] in one
/// flat buffer, padded for equal parts.
struct Embeddings : Flat {
  std::int64_t part =
      0;  ///< elements of one part, a multiple of `alignment`; elements = parts * part

  /// Of the head that is tied: the embedding.
  const Tensor& tensor(Role role) const {
    const int index = static_cast<int>(role) - static_cast<int>(Role::embedding);
    return tensors[index < std::ssize(tensors) ? index : 0];
  }
};

struct Layout {
  Shape shape;
  std::vector<Shard> shards;
  Embeddings embeddings;
  std::vector<Shape> slices{};  ///< slices_of(shape), if there are several

  /// The shape of a micro-batch, or of a slice of one: each has a number (Program::slices).
  const Shape& shape_of(int micro_batch) const {
    return slices.empty() || micro_batch < 0 ? shape : slices[micro_batch % slices.size()];
  }

  /// All flat buffers of the model: the shards, then the embeddings.
  std::vector<const Flat*> parts() const;
};

/// Numbers of pieces into which the model's weights are divided.
struct Cut {
  int shards = 1;            ///< runs of blocks
  int embeddings_parts = 1;  ///< equal parts of the embeddings
  int shard_parts = 1;       ///< each shard is padded so that it splits into this many equal parts
  /// Two parts: the embedding alone, final norm and head together; not for a head that is tied.
  bool embeddings_split = false;
  bool head_counts = false;  ///< runs are balanced by what the last one has of it as well
};

/// What runs of blocks are balanced by: FLOPs per token, halved, of a step's passes over a block,
/// and over the head.
struct BlockCosts {
  std::int64_t block = 0, head = 0;
  friend bool operator==(const BlockCosts&, const BlockCosts&) = default;
};

BlockCosts block_costs(const Shape& shape);
/// Blocks of each shard, at least one. The dearest shard is as cheap as possible; then each takes
/// close to an equal share of what is left.
std::vector<int> shard_lengths(int layers, const BlockCosts& costs, const Cut& cut);

/// Splits the blocks into runs, balanced by the FLOPs of their passes, each with at least one
/// block, and the embeddings into parts. Where the head counts, the run before it is the shorter
/// the larger the vocabulary is. Parts are multiples of `alignment`. Throws InputError
/// if the shape cannot be computed or has fewer layers than shards.
Layout make_layout(const Shape& shape, const Cut& cut);
}  // namespace minitaw::model
