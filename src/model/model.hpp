#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "kernels/attention.hpp"
#include "model/adamw.hpp"
#include "model/buffer.hpp"
#include "model/initial.hpp"
#include "model/layout.hpp"
#include "model/micro_batch.hpp"
#include "model/plan.hpp"

namespace minitaw::model {

using kernels::ExecutionSpace;

/// Optimiser state of a shard or of a slice of the ends: first moment, second moment, and the fp32 master
/// weights, which for fp32 compute are the weights themselves (empty buffer here). All zero before the first
/// step, except that `master` holds the initial weights.
struct OptimiserState {
  Buffer moment1, moment2, master;
};

/// The state in one buffer of optimiser_bytes(dtype, elements).
[[nodiscard]] OptimiserState optimiser_state(const Buffer& buffer, Dtype dtype, std::int64_t elements);

/// The compute actions of a training step on one device. Every call is asynchronous on `exec` and uses no
/// memory but what it is given: weights, gradients and activations by the caller, scratch of
/// workspace_bytes(). A buffer that is too small raises LogicError.
///
/// x: hidden state [B S, H]; after `loss` it holds the gradient of the step's mean loss with respect to it.
/// kept: kept_bytes(layout, shard) bytes between the forward and the backward visit of one (shard,
/// micro-batch); the backward visit consumes them.
class Model {
public:
  /// `loss_scale` multiplies the summed cross-entropy of a micro-batch: 1 / (tokens of the whole step). The
  /// workspace belongs to this model from now on. Throws InputError when this build cannot compute in the
  /// shape's dtype.
  Model(ExecutionSpace exec, Layout layout, double loss_scale, Buffer workspace,
        kernels::Attention attention = kernels::Attention::automatic);

  [[nodiscard]] const Layout& layout() const { return layout_; }

  /// x = embedding[inputs].
  void embed(Buffer x, Buffer ends, const MicroBatch& batch);
  /// x = shard(x), keeping what the backward visit needs.
  void forward(int shard, Buffer x, Buffer kept, Buffer weights);
  /// Final norm, head, softmax cross-entropy in slices; x becomes its own gradient; adds the gradients of
  /// norm and head to `ends_gradient` (fp32) and the micro-batch's loss (already scaled) to *loss (fp64,
  /// device memory).
  void loss(Buffer x, Buffer ends_gradient, double* loss, Buffer ends, const MicroBatch& batch);
  /// x = gradient at the shard's input; the shard's gradient is added to (accumulate) or written to
  /// `gradient`, whose elements are fp32 (`total`) or of the compute type. Written, its gaps are zero.
  void backward(int shard, Buffer x, Buffer gradient, bool accumulate, Buffer kept, Buffer weights);
  /// Adds the embedding's gradient to `ends_gradient` (fp32).
  void embed_backward(Buffer ends_gradient, Buffer x, const MicroBatch& batch);

  /// AdamW on an owned shard; `step` counts from 1. total: fp32 gradient of the whole step.
  void update(int shard, Buffer weights, OptimiserState state, Buffer total, const AdamW& adamw, int step);
  /// AdamW on slice `slice` of the ends, in place in the full ends buffers; the state is that of the slice.
  void update_ends(int slice, Buffer ends, OptimiserState state, Buffer ends_gradient, const AdamW& adamw,
                   int step);

private:
  void loss_of_slice(Buffer x, Buffer ends_gradient, double* loss, Buffer ends, std::int64_t begin,
                     std::int64_t rows);
  kernels::Vector<std::int32_t> upload(const Region& region, MicroBatch::Tokens pinned);
  void update_range(const std::vector<Tensor>& tensors, std::int64_t begin, std::int64_t end, Buffer weights,
                    const OptimiserState& state, Buffer gradient, const AdamW& adamw, int step);

  ExecutionSpace exec_;
  Layout layout_;
  double loss_scale_;
  Buffer workspace_;
  kernels::Attention attention_;
  WorkspacePlan plan_;
};

}  // namespace minitaw::model
