#pragma once

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/pinned_space.hpp"
#include "kernels/kernels.hpp"
#include "model/data.hpp"
#include "model/layout.hpp"
#include "model/plan.hpp"

namespace minitaw::model {

/// Untyped device memory handed out by an arena; aligned to 256 bytes.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data);
  }
  /// Room for `count` elements from byte `begin` on. Throws LogicError if there is less.
  template <class T>
  [[nodiscard]] T* at(std::size_t begin, std::int64_t count) const {
    require(begin + static_cast<std::size_t>(count) * sizeof(T));
    return reinterpret_cast<T*>(data + begin);
  }
  void require(std::size_t needed) const;
};

/// What attention takes of a shape.
[[nodiscard]] kernels::AttentionSizes attention_sizes(const Shape& shape);

/// Tokens of one micro-batch, T = B S, and what the embedding's gradient needs to know about their order; all
/// in pinned memory that is taken once. Filled outside of a step: kernels read it until their step is over.
class MicroBatch {
public:
  explicit MicroBatch(const Shape& shape);
  MicroBatch(MicroBatch&&) = default;
  MicroBatch& operator=(MicroBatch&&) = default;

  /// What `source` gives for this step (from 0) from sequence number `first` on.
  void fill(TokenSource& source, std::int64_t step, std::int64_t first);

  using Tokens = std::span<const std::int32_t>;
  [[nodiscard]] Tokens targets() const { return part(0, tokens_); }
  [[nodiscard]] Tokens inputs() const { return part(tokens_, tokens_); }
  /// Positions by input token, and where each distinct token begins: see sort_positions().
  [[nodiscard]] Tokens order() const { return part(2 * tokens_, tokens_); }
  [[nodiscard]] Tokens segments() const { return part(3 * tokens_, segments_); }
  /// inputs, order and segments, one behind another, so that one copy brings them to the device.
  [[nodiscard]] Tokens index() const { return part(tokens_, 2 * tokens_ + segments_); }

private:
  [[nodiscard]] std::span<std::int32_t> part(std::size_t begin, std::size_t count) const {
    return {memory_.data() + begin, count};
  }

  std::int64_t vocab_;
  std::size_t tokens_;
  std::size_t segments_ = 0;
  Kokkos::View<std::int32_t*, PinnedSpace> memory_;
};

template <class E>
class Block;

using kernels::AdamW;
using kernels::ExecutionSpace;

/// Optimiser state of a shard or of a slice of the embeddings: first moment, second moment, and the fp32
/// master weights, which for fp32 compute are the weights themselves (empty buffer here). All zero before the
/// first step, except that `master` holds the initial weights.
struct OptimiserState {
  /// The state in one buffer of optimiser_bytes(dtype, elements). Throws LogicError if it is smaller.
  OptimiserState(const Buffer& buffer, Dtype dtype, std::int64_t elements);

  Buffer moment1, moment2, master;
};

/// Initial weights of a part of the flat buffer that `tensors` lie in: in the compute type to `weights`, in
/// fp32 to `master`; an empty buffer takes none. Padding is zero. Drawn where they are needed; complete on
/// return.
void draw(Buffer weights, Buffer master, std::vector<Tensor> tensors, Range part, const Shape& shape,
          std::uint64_t seed);

/// The compute actions of a training step on one device, in the shape's dtype. Every call is asynchronous on
/// `exec`, never stops the host, and uses no memory but what it is given: weights, gradients and activations
/// by the caller, scratch as plan_workspace() says. A buffer that is too small raises LogicError, as does a
/// tensor of the embeddings that is not in the part of them that the rank holds.
///
/// x: hidden state [B S, H]; after `loss` it holds the gradient of the step's mean loss with respect to it.
/// saved: what lives between the forward and the backward visit of one (shard, micro-batch), plan_saved();
/// the backward visit consumes it. deferred: what lives between the two halves of a backward visit that is
/// split, plan_deferred(); what is saved must then stay until the second half. Hidden states, saved
/// activations and the weights of shards and embeddings are of the compute type.
class Model {
public:
  /// `loss_scale` multiplies the summed cross-entropy of a micro-batch: 1 / (tokens of the whole step). The
  /// workspace belongs to this model from now on. Readies the libraries that `exec` uses, which may take
  /// long. Every buffer of the embeddings below holds `embeddings_part` of them only; without it, all. Throws
  /// InputError when this build or device has not the attention asked for.
  Model(ExecutionSpace exec, Layout layout, double loss_scale, Buffer workspace,
        kernels::Attention attention = kernels::Attention::automatic,
        std::optional<Range> embeddings_part = {});

  [[nodiscard]] const Layout& layout() const { return layout_; }
  /// The one in use; never `automatic`.
  [[nodiscard]] kernels::Attention attention() const { return attention_; }

  /// x = embedding[inputs].
  void embed(Buffer x, Buffer embeddings, const MicroBatch& batch);
  /// x = shard(x), keeping what the backward visit needs.
  void forward(int shard, Buffer x, Buffer saved, Buffer weights);
  /// Final norm, head, softmax cross-entropy in slices; x becomes its own gradient; the gradients of norm and
  /// head are added to (accumulate) or written to `embeddings_gradient` (fp32), and the micro-batch's loss
  /// (already scaled) is added to *loss (fp64, device memory).
  void loss(Buffer x, Buffer embeddings_gradient, bool accumulate, double* loss, Buffer embeddings,
            const MicroBatch& batch);
  /// x = gradient at the shard's input; the shard's gradient is added to (accumulate) or written to
  /// `gradient`, whose elements are of `gradient_type`: fp32 (`total`) or the compute type. Written, its
  /// padding is zero.
  void backward(int shard, Buffer x, Buffer gradient, Dtype gradient_type, bool accumulate, Buffer saved,
                Buffer weights);
  /// The first half of backward(): x = gradient at the shard's input; leaves in saved and deferred what the
  /// second reads.
  void backward_input(int shard, Buffer x, Buffer saved, Buffer deferred, Buffer weights);
  /// The second half: the shard's gradient, to the bit what backward() gives.
  void backward_weight(int shard, Buffer gradient, Dtype gradient_type, bool accumulate, Buffer saved,
                       Buffer deferred);
  /// The embedding's gradient is added to (accumulate) or written to `embeddings_gradient` (fp32).
  void embed_backward(Buffer embeddings_gradient, bool accumulate, Buffer x, const MicroBatch& batch);

  /// AdamW on an owned shard, or on one of `slices` equal slices of it, which all buffers then hold alone;
  /// `step` counts from 1. total: fp32 gradient of the whole step. The weights become the master weights,
  /// rounded. Padding must hold zeros everywhere, and keeps them.
  void update(int shard, Buffer weights, Buffer state, Buffer total, const AdamW& adamw, int step,
              int slice = 0, int slices = 1);
  /// AdamW on slice `slice` of the embeddings, in place in the buffers of the embeddings; the state is that
  /// of the slice.
  void update_embeddings(int slice, Buffer embeddings, Buffer state, Buffer embeddings_gradient,
                         const AdamW& adamw, int step);

private:
  /// Without weights, a block that knows its gains from the deferred; without deferred, one whose backward
  /// pass is not split.
  template <class E>
  [[nodiscard]] Block<E> block(int shard, int index, Buffer saved, Buffer deferred, Buffer weights) const;
  [[nodiscard]] int last_block(int shard) const { return layout_.shards[shard].layers - 1; }
  /// A hidden state or its gradient [T, H].
  template <class E>
  [[nodiscard]] kernels::Matrix<E> hidden(Buffer x) const;
  /// use(E{}, i, its BlockTensors<G>) for each block i of the shard, the last first. A gradient that is
  /// written has zeros in its padding then.
  template <class Use>
  void for_gradients(int shard, Buffer gradient, Dtype type, bool accumulate, const Use& use);
  void update_range(const std::vector<Tensor>& tensors, Range range, std::int64_t origin, Buffer weights,
                    Buffer state, Buffer gradient, const AdamW& adamw, int step);

  /// A tensor of the embeddings by its place in the rank's part of them.
  [[nodiscard]] const Tensor& embeddings_tensor(Role role) const;
  /// `pinned` of the micro-batch; throws LogicError if it is of another shape or not filled yet.
  kernels::Vector<std::int32_t> upload(const Region& region, const MicroBatch& batch,
                                       MicroBatch::Tokens pinned);

  ExecutionSpace exec_;
  Layout layout_;
  double loss_scale_;
  Buffer workspace_;
  kernels::Attention attention_;
  Range embeddings_part_;
  std::vector<Tensor> embeddings_tensors_;  ///< by their places in the rank's part; some may lie outside
  WorkspacePlan plan_;
  std::vector<ShardPlan> saved_, deferred_;  ///< of each shard
  std::vector<std::vector<Range>> padding_;  ///< of each shard
  std::vector<Range> embeddings_padding_;    ///< of the rank's part of the embeddings
};

}  // namespace minitaw::model
