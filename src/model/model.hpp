#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <span>

#include "model/layout.hpp"

namespace minitaw::model {

using ExecutionSpace = Kokkos::DefaultExecutionSpace;

/// Untyped device memory handed out by an arena; aligned to 256 bytes.
struct Buffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;

  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

/// AdamW with the fields of Loshchilov & Hutter, decay on matrices only.
struct AdamW {
  float learning_rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float decay = 0.1F;
};

/// fp32 optimiser state of a shard or of a slice of the ends: first moment, second moment, and the fp32 master
/// weights, which for fp32 compute are the weights themselves (empty buffer here).
struct OptimiserState {
  Buffer moment1, moment2, master;
};

/// The compute actions of a training step on one device. Every call is asynchronous on `exec` and uses no memory
/// but what it is given: weights, gradients and activations by the caller, scratch of workspace_bytes().
///
/// x: hidden state [B S, H]; after `loss` it holds the gradient of the step's mean loss with respect to it.
/// kept: kept_bytes(layout, shard) bytes between the forward and the backward visit of one (shard, micro-batch).
class Model {
public:
  /// `loss_scale` multiplies the summed cross-entropy of a micro-batch: 1 / (tokens of the whole step).
  Model(ExecutionSpace exec, Layout layout, double loss_scale, Buffer workspace);

  [[nodiscard]] const Layout& layout() const { return layout_; }

  /// x = embedding[tokens]; tokens [B S] in host memory.
  void embed(Buffer x, Buffer ends, std::span<const std::int32_t> tokens);
  /// x = shard(x), keeping what the backward visit needs.
  void forward(int shard, Buffer x, Buffer kept, Buffer weights);
  /// Final norm, head, softmax cross-entropy in slices; x becomes its own gradient; adds the gradients of norm and
  /// head to `ends_gradient` (fp32) and the micro-batch's loss (already scaled) to *loss (fp64, device memory).
  void loss(Buffer x, Buffer ends_gradient, double* loss, Buffer ends, std::span<const std::int32_t> targets);
  /// x = gradient at the shard's input; the shard's gradient is added to (accumulate) or written to `gradient`,
  /// whose elements are fp32 (`total`) or of the compute type.
  void backward(int shard, Buffer x, Buffer gradient, bool accumulate, Buffer kept, Buffer weights);
  /// Adds the embedding's gradient to `ends_gradient` (fp32).
  void embed_backward(Buffer ends_gradient, Buffer x, std::span<const std::int32_t> tokens);

  /// AdamW on an owned shard; `step` counts from 1. total: fp32 gradient of the whole step.
  void update(int shard, Buffer weights, OptimiserState state, Buffer total, const AdamW& adamw, int step);
  /// AdamW on slice `slice` of the ends, in place in the full ends buffers.
  void update_ends(int slice, Buffer ends, OptimiserState state, Buffer ends_gradient, const AdamW& adamw,
                   int step);

private:
  ExecutionSpace exec_;
  Layout layout_;
  double loss_scale_;
  Buffer workspace_;
};

/// Initial weights of a shard / of the ends, fp32, from a counter-based generator keyed by (seed, layer, tensor,
/// index): the same values whatever the sharding. Gaps are zero.
void initialise(std::span<float> weights, const Shard& shard, const Shape& shape, std::uint64_t seed);
void initialise(std::span<float> weights, const Ends& ends, const Shape& shape, std::uint64_t seed);

}  // namespace minitaw::model
