// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include "kernels/kernels.hpp"
#include "model/data.hpp"
#include "model/plan.hpp"

namespace minitaw::model {
/// Untyped device memory handed out by an arena; aligned to 256 bytes.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }

  /// Room for `count` elements from byte `begin` on. Throws LogicError if there is less.
  template <class T>
  T* at(std::size_t begin, std::int64_t count) const {
    require(begin + static_cast<std::size_t>(count) * sizeof(T));
    return reinterpret_cast<T*>(data + begin);
  }

  void require(std::size_t needed) const;
};

kernels::AttentionSizes attention_sizes(const Shape& shape);
/// The calls of attention that a rank makes for a block: one; or of sequences that ranks share, for
/// part `key_part` of Shape::key_parts of the heads, one for each run of the rank.
std::vector<kernels::AttentionPart> attention_parts(const Shape& shape, int key_part = 0);

/// Tokens of one micro-batch, T = B S, or of a slice of it, and their order, in pinned memory.
/// Kernels read it until their step is over.
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

  Tokens segments() const { return part(3 * tokens_, segments_); }

  /// inputs, order and segments, one behind another, so that one copy brings them to the device.
  Tokens index() const { return part(tokens_, 2 * tokens_ + segments_); }

private:
  std::span<std::int32_t> part(std::size_t begin, std::size_t count) const {
    return {memory_.data() + begin, count};
  }

  std::int64_t vocab_;
  std::vector<SequenceRun> runs_;
  std::size_t tokens_, segments_ = 0;
  Kokkos::View<std::int32_t*, kernels::PinnedSpace> memory_;
};

template <class E>
class Block;
using kernels::AdamW, kernels::ExecutionSpace;

/// Optimiser state of a shard or of a slice of the embeddings: both moments, and the fp32 master
/// weights, which for fp32 compute are the weights themselves (empty buffer here). All zero at
/// first, but for the initial weights.
struct OptimiserState {
  /// The state in one buffer of optimiser_bytes(dtype, elements). Throws LogicError if it is
  /// smaller.
  OptimiserState(const Buffer& buffer, Dtype dtype, std::int64_t elements);
  Buffer moment1, moment2, master;
};

/// The buffers of a compute action; each names those that it needs.
struct Operands {
  Buffer weights{};  ///< of the shard, or of embedding, final norm and head; compute type
  Buffer
      saved{};  ///< what lives from the forward to the backward visit of one (shard, micro-batch)
  Buffer hidden{};        ///< hidden state [B S, H] or its gradient; compute type; changed in place
  Buffer deferred{};      ///< what lives from backward_input() to backward_weight()
  Buffer keys{};          ///< of a block: keys and values of sequences, or slices, that ranks share
  Buffer key_gradient{};  ///< their gradients, in Shape::key_gradient_dtype()
  Buffer prefix{};        ///< of all blocks of the shard: those of slices, for whole sequences
  Buffer prefix_gradient{};
  int slice = 0;                      ///< of the sequences, where they come in slices
  Buffer gradient{};                  ///< of the weights
  Dtype gradient_type = Dtype::fp32;  ///< fp32 (the accumulator) or the compute type
  bool accumulate = false;            ///< adds to the gradient instead of writing it
};

struct UpdateOperands {
  Buffer weights;    ///< compute type; they become the master weights, rounded
  Buffer gradient;   ///< of the whole step, fp32
  Buffer state;      ///< OptimiserState
  Buffer squares{};  ///< begins with those of all gradients of the model; needed where they are
                     ///< clipped
};

/// Initial weights of a part of a flat buffer: in the compute type to `weights`, in fp32 to
/// `master`; empty: none.
void draw(Buffer weights,
    Buffer master,
    std::vector<Tensor> tensors,
    Range part,
    const Shape& shape,
    std::uint64_t seed);

/// The compute actions of a training step on one device, in the shape's dtype. Every call is
/// asynchronous on `exec`, never stops the host, and uses no memory but the operands and the
/// scratch of plan_workspace(). Throws LogicError for a buffer that is too small or a tensor of the
/// embeddings that the rank does not hold.
///
/// Slices of a sequence go forward in its order: each leaves its keys and values in `prefix`, and
/// attends to those of the slices before too. They come back in the reverse order: each adds to
/// `prefix_gradient` of the slices before.
///
/// After loss(), `hidden` holds the gradient of the step's mean loss with respect to the hidden
/// state. plan_saved() and plan_deferred() lay out `saved` and `deferred`. The (second half of the)
/// backward visit consumes `saved`.
class Model {
public:
  /// `loss_scale` multiplies the summed cross-entropy of a micro-batch: 1 / (tokens of the step).
  /// The workspace is the model's from now on. Prepares the libraries that `exec` uses, which may
  /// take long. Every buffer of the embeddings holds only `embeddings_part`; without it, all.
  /// `duties`: the actions that will be called. Throws InputError without the attention asked for.
  Model(ExecutionSpace exec,
      Layout layout,
      double loss_scale,
      Buffer workspace,
      kernels::Attention attention = kernels::Attention::automatic,
      std::optional<Range> embeddings_part = {},
      const Duties& duties = all_duties);

  const Layout& layout() const { return layout_; }

  /// The attention kernel in use, of all calls.
  const kernels::AttentionChoice& attention() const { return attention_; }

  /// hidden = embedding[inputs]. Needs weights.
  void embed(const Operands& o, const MicroBatch& batch);
  /// hidden = shard(hidden). Needs weights; writes saved.
  void forward(int shard, const Operands& o);
  /// Final norm, head, softmax cross-entropy in slices; `hidden` becomes its own gradient. Needs
  /// weights; gives the gradients of norm and head, and adds the scaled loss to *loss (fp64, device
  /// memory).
  void loss(const Operands& o, double* loss, const MicroBatch& batch);
  /// hidden = gradient at the shard's input. Needs weights and saved; gives the shard's gradient,
  /// with its padding.
  void backward(int shard, const Operands& o);
  /// The first half of backward(). Needs weights and saved; writes to saved and deferred what the
  /// second reads.
  void backward_input(int shard, const Operands& o);
  /// The second half of backward(): the shard's gradient, with the same bits. Needs saved and
  /// deferred.
  void backward_weight(int shard, const Operands& o);

  // Where ranks share sequences, visits are runs of segments, a few for each block of the shard:
  // block by block forward_keys and forward_attend; from the last block to the first backward_keys,
  // backward_attend and backward_finish, and before the latter, unless the visit is the half
  // towards the input, backward_attend_weights. Between keys and attend, the parts of `keys` come
  // from the other ranks; between attend and finish, `key_gradient` is summed over them.
  // backward_keys of the block before may come as soon as attend and its weights are over. Only
  // segments of one visit use the scratch between its first and its last one.
  //
  // Of slices, the keys of all ranks go on to `prefix` before attention (forward_extend), and stay
  // there for the backward visits; what `prefix_gradient` has of the slice goes to `key_gradient`
  // after it (backward_share).

  /// Needs weights and hidden; writes saved and this rank's part of keys.
  void forward_keys(int shard, int block, const Operands& o);
  /// Needs the part of keys; writes it to prefix.
  void forward_extend(int shard, int block, Part heads, const Operands& o);
  /// hidden = block(hidden), once all parts of the heads have been attended to. Needs weights, and
  /// the part of keys; writes saved.
  void forward_attend(int shard, int block, Part heads, const Operands& o);
  /// Needs weights and saved; writes this rank's part of keys, and deferred if there is one.
  void backward_keys(int shard, int block, const Operands& o);
  /// Needs weights, saved, hidden and keys; writes key_gradient, all of it, and deferred if there
  /// is one.
  void backward_attend(int shard, int block, const Operands& o);
  /// Writes key_gradient. Needs prefix_gradient.
  void backward_share(int shard, int block, const Operands& o);
  /// Gives the gradient of the block's weights but norm1 and wqkv. Needs saved and hidden.
  void backward_attend_weights(int shard, int block, const Operands& o);
  /// hidden = gradient at the block's input. Needs weights, saved, this rank's part of
  /// key_gradient; gives the rest of the block's gradient, or writes deferred if there is one.
  void backward_finish(int shard, int block, const Operands& o);

  /// Gives the embedding's gradient. Needs hidden.
  void embed_backward(const Operands& o, const MicroBatch& batch);
  /// `squares` (squares_bytes) begins with the sum of the squares of `gradient`, fp32, or it is
  /// added to that.
  void square(Buffer squares, Buffer gradient, bool accumulate);
  /// AdamW on a slice of an owned shard, all of the buffers; `step` counts from 1. Padding holds
  /// zeros, and keeps them.
  void update(int shard, Part slice, const UpdateOperands& o, const AdamW& adamw, int step);
  /// AdamW on a slice of the embeddings, all of `state`; weights and gradient hold all that the
  /// rank has.
  void update_embeddings(int slice, const UpdateOperands& o, const AdamW& adamw, int step);

private:
  /// A block on the buffers of `o`. Without weights it takes gains from `deferred`; without that,
  /// it is not split.
  template <class E>
  Block<E> block(int shard, int index, const Operands& o) const;
  /// use(the block)
  template <class Use>
  void with_block(int shard, int index, const Operands& o, const Use& use) const;
  /// use(the block, its BlockTensors<G>); clears padding that is written.
  template <class Use>
  void for_gradient(int shard, int index, const Operands& o, const Use& use) const;

  int last_block(int shard) const { return layout_.shards[shard].layers - 1; }

  /// The shape of the slice that an action is about; of all, where there are none.
  const Shape& shape_of(const Operands& o) const { return layout_.shape_of(o.slice); }
  /// A hidden state or its gradient [T, H].
  template <class E>
  kernels::Matrix<E> hidden(const Operands& o) const;
  /// Where a backward visit has the gradients [T, H] of a block's output and input.
  template <class E>
  kernels::Matrix<E> gradient_at_output(int shard, int block, const Operands& o);
  template <class E>
  kernels::Matrix<E> gradient_at_input(int shard, int block, const Operands& o) const;
  void update_range(const std::vector<Tensor>& tensors,
      Range range,
      std::int64_t origin,
      const UpdateOperands& o,
      const AdamW& adamw,
      int step);
  /// A tensor of the embeddings by its place in the rank's part of them.
  const Tensor& embeddings_tensor(Role role) const;
  /// `pinned` of the micro-batch; throws LogicError if it is of another shape or not filled yet.
  kernels::Vector<std::int32_t> upload(
      const Region& region, const Operands& o, const MicroBatch& batch, MicroBatch::Tokens pinned);

  ExecutionSpace exec_;
  Layout layout_;
  double loss_scale_;
  Buffer workspace_;
  kernels::AttentionChoice attention_;
  Range embeddings_part_;
  std::vector<Tensor>
      embeddings_tensors_;  ///< by their places in the rank's part; some may lie outside
  WorkspacePlan plan_;
  std::vector<BlockPlan> saved_, deferred_;  ///< of each slice
  std::vector<std::vector<Range>> padding_;  ///< of each shard
  std::vector<Range> embeddings_padding_;    ///< of the rank's part of the embeddings
};
}  // namespace minitaw::model
