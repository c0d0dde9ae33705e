// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include "model/data.hpp"
#include "model/shard_pass.hpp"
#include "model/shared_keys.hpp"

namespace minitaw::model {
/// Token ids of one micro-batch (T = B S) or of a slice of it, and their positions sorted by id.
/// They are in pinned memory, which kernels read until their step is over.
class MicroBatch {
public:
  explicit MicroBatch(const Shape& shape);
  MicroBatch(MicroBatch&&) = default;
  MicroBatch& operator=(MicroBatch&&) = default;

  /// Takes the tokens of `source` for this step (from 0), from sequence number `first` on.
  void fill(TokenSource& source, std::int64_t step, std::int64_t first);

  using Tokens = std::span<const std::int32_t>;

  Tokens targets() const { return part(0, tokens_); }

  Tokens inputs() const { return part(tokens_, tokens_); }

  /// Positions by input token, and where each distinct token begins: see sort_positions().
  Tokens order() const { return part(2 * tokens_, tokens_); }

  Tokens starts() const { return part(3 * tokens_, starts_); }

  /// inputs, order and starts as one range: one copy takes them to the device.
  Tokens index() const { return part(tokens_, 2 * tokens_ + starts_); }

private:
  std::span<std::int32_t> part(std::size_t begin, std::size_t count) const {
    return {memory_.data() + begin, count};
  }

  std::int64_t vocab_;
  std::vector<SequenceRun> runs_;
  std::size_t tokens_, starts_ = 0;
  Kokkos::View<std::int32_t*, kernels::PinnedSpace> memory_;
};

template <class E>
class Block;
using kernels::AdamW;

/// Optimiser state of a shard or of a part of the embeddings. Moments begin as zeros. `master` is
/// empty in fp32: the weights are the master weights.
struct OptimiserState {
  /// The state in one buffer of optimiser_bytes(dtype, elements). Throws LogicError if it is
  /// smaller.
  OptimiserState(const Buffer& buffer, Dtype dtype, std::int64_t elements);
  Buffer moment1, moment2, master;
};

/// A gradient of weights, written or added to.
struct Gradient {
  Buffer buffer{};
  Dtype dtype = Dtype::fp32;  ///< fp32 (the accumulator) or the compute type
  bool accumulate = false;
};

/// The buffers of a pass over one shard. What a pass does not need is empty.
struct PassBuffers {
  Buffer weights{};        ///< the shard's; not for backward_weight
  Buffer saved{};          ///< written by forward for the backward passes: plan_saved()
  Buffer hidden{};         ///< hidden state [T, H] or its gradient, changed in place; not for
                           ///< backward_weight
  Buffer deferred{};       ///< written by backward_input, read by backward_weight: plan_deferred()
  KeyBuffers of_ranks{};   ///< one block's, where ranks share sequences
  KeyBuffers of_slices{};  ///< the shard's, for whole sequences, where they come in slices
  Gradient gradient{};     ///< the shard's; not for forward and backward_input
};

/// The buffers of the embedding, or of final norm, head and loss.
struct EndBuffers {
  Buffer weights{};   ///< of embedding, final norm and head
  Buffer hidden{};    ///< [T, H], or its gradient
  Buffer gradient{};  ///< of the weights, fp32
  bool accumulate = false;
  int slice = 0;  ///< of the micro-batch
};

struct UpdateBuffers {
  Buffer weights;    ///< compute type; they become the master weights, rounded
  Buffer gradient;   ///< of the whole step, fp32
  Buffer state;      ///< OptimiserState
  Buffer squares{};  ///< its first number is the squared norm of the model's gradient; only for
                     ///< clipping
};

/// Draws the initial weights of a part of a flat buffer: in the compute type to `weights`, in fp32
/// to `master`. An empty buffer is left out.
void draw(Buffer weights,
    Buffer master,
    std::vector<Tensor> tensors,
    Range part,
    const Shape& shape,
    std::uint64_t seed);

/// The computation of a training step on one device, in the shape's dtype. Every call is
/// asynchronous on `exec`, never stops the host, and uses no memory but the buffers and the scratch
/// of plan_workspace(). Throws LogicError for a buffer that is too small or a tensor of the
/// embeddings that the rank does not hold.
class Model {
public:
  /// `loss_scale` multiplies the summed cross-entropy of a micro-batch: 1 / (tokens of the step).
  /// Keeps the workspace. Prepares the libraries that `exec` uses, which may take long.
  /// `embeddings_part`: elements that buffers of the embeddings hold; none: all. `duties`: the
  /// actions that will be called. Throws InputError if `attention` is not available.
  Model(ExecutionSpace exec,
      Layout layout,
      double loss_scale,
      Buffer workspace,
      kernels::Attention attention = kernels::Attention::automatic,
      std::optional<Range> embeddings_part = {},
      const Duties& duties = all_duties);

  const Layout& layout() const { return layout_; }

  /// The attention kernel that all calls use.
  const kernels::AttentionChoice& attention() const { return attention_; }

  /// hidden = embedding[inputs].
  void embed(const EndBuffers& b, const MicroBatch& batch);

  /// Forward: hidden = shard(hidden). Backward: `hidden` becomes the gradient at the shard's input;
  /// gradients of weights are written, and their padding as zeros. Two halves give the bits of
  /// `backward`.
  ///
  /// Slices of a sequence go forward in its order: each leaves its keys and values in `of_slices`,
  /// and attends to those of the slices before too. They come back in the reverse order: each adds
  /// to the gradients of the slices before.
  ///
  /// Where ranks share sequences, the segments of one pass come block by block, and no other pass
  /// uses the scratch between them. Ranks exchange `of_ranks.key_values` after each `keys` segment,
  /// and add up `of_ranks.gradient` before `finish`.
  void run(const ShardPass& pass, const PassBuffers& b);

  /// Final norm, head, softmax cross-entropy in tiles; `hidden` becomes the gradient of the step's
  /// mean loss. Gives the gradients of norm and head, and adds the scaled loss to *loss (fp64,
  /// device memory).
  void loss(const EndBuffers& b, double* loss, const MicroBatch& batch);
  /// Gives the embedding's gradient. Of a tied matrix, loss() gives another term of it.
  void embed_backward(const EndBuffers& b, const MicroBatch& batch);

  /// Writes the sum of the squares of `gradient` (fp32) to the first number of `squares`
  /// (squares_bytes), or adds it.
  void square(Buffer squares, Buffer gradient, bool accumulate);
  /// Updates one part of an owned shard by AdamW. The buffers hold that part only; `step` counts
  /// from 1. Padding stays zero.
  void update(int shard, Part part, const UpdateBuffers& o, const AdamW& adamw, int step);
  /// Updates one part of the embeddings. `state` holds that part; weights and gradient hold all
  /// that the rank has.
  void update_embeddings(int part, const UpdateBuffers& o, const AdamW& adamw, int step);

private:
  template <class E>
  void run_block(const ShardPass& pass, int index, const PassBuffers& b);
  template <class E>
  Block<E> block(const ShardPass& pass, int index, const PassBuffers& b) const;
  /// The gradient [T, H] at a block's output, as backward_input has left it.
  template <class E>
  Matrix<E> deferred_gradient(const ShardPass& pass, int index, const PassBuffers& b) const;
  /// A hidden state or its gradient [T, H].
  template <class E>
  Matrix<E> hidden(const Buffer& buffer, int slice) const;
  void update_range(const std::vector<Tensor>& tensors,
      Range range,
      std::int64_t origin,
      const UpdateBuffers& o,
      const AdamW& adamw,
      int step);
  /// A tensor of the embeddings by its place in the rank's part of them.
  const Tensor& embeddings_tensor(Role role) const;
  /// Copies `pinned`, a range of `batch`, to the workspace. Throws LogicError if the batch is of
  /// another shape or not filled yet.
  kernels::Vector<std::int32_t> upload(
      const Region& region, int slice, const MicroBatch& batch, MicroBatch::Tokens pinned);

  ExecutionSpace exec_;
  Layout layout_;
  double loss_scale_;
  Buffer workspace_;
  kernels::AttentionChoice attention_;
  Range embeddings_part_;
  Embeddings embeddings_;  ///< by offsets in the rank's part; some tensors lie outside of it
  WorkspacePlan plan_;
  std::vector<BlockPlan> saved_, deferred_;  ///< by slice
  std::vector<std::vector<Range>> padding_;  ///< by shard
  std::vector<Range> embeddings_padding_;    ///< of the rank's part of the embeddings
};
}  // namespace minitaw::model
