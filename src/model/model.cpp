#include "model/model.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "kernels/rope.hpp"
#include "model/block.hpp"
#include "model/footprint.hpp"
#include "model/views.hpp"

namespace minitaw::model {

namespace {

using E = float;  // the one compute type so far

/// The gaps between tensors travel and are summed, so they must not hold what another shard left.
void clear_gaps(const ExecutionSpace& exec, const Buffer& gradient, const Shard& shard) {
  const auto& tensors = shard.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t begin = tensors[i].offset + tensors[i].size();
    const std::int64_t end = i + 1 < tensors.size() ? tensors[i + 1].offset : shard.elements;
    if (begin < end)
      Kokkos::deep_copy(exec, Vector<E>(gradient.as<E>() + begin, static_cast<std::size_t>(end - begin)),
                        E{});
  }
}

}  // namespace

void require(const Buffer& buffer, std::size_t bytes, std::string_view what) {
  if (buffer.data == nullptr || buffer.bytes < bytes)
    throw LogicError(fmt::format("{} has {} bytes where {} are needed", what, buffer.bytes, bytes));
}

Model::Model(ExecutionSpace exec, Layout layout, double loss_scale, Buffer workspace,
             kernels::Attention attention)
    : exec_(std::move(exec)), layout_(std::move(layout)), loss_scale_(loss_scale), workspace_(workspace),
      attention_(attention), plan_(plan_workspace(layout_)) {
  if (layout_.shape.dtype != Dtype::fp32)
    throw InputError(fmt::format("dtype = {}: this build computes in fp32 only; {} needs a build with CUDA",
                                 name_of(layout_.shape.dtype), name_of(layout_.shape.dtype)));
  require(workspace_, plan_.bytes, "workspace");
  kernels::rope_table(exec_,
                      matrix_at<float>(workspace_, plan_.rope, layout_.shape.seq, layout_.shape.head_dim()));
}

void Model::forward(int shard, Buffer x, Buffer kept, Buffer weights) {
  const Shape& shape = layout_.shape;
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const KeptPlan kept_plan = plan_kept(layout_, shard);
  require(x, flow_bytes(shape), "hidden state");
  require(kept, kept_plan.bytes, "kept activations");
  require(weights, static_cast<std::size_t>(run.elements) * sizeof(E), "weights of a shard");
  for (int i = 0; i < run.layers; ++i) {
    const BlockState<E> state(shape, shape.ffn[static_cast<std::size_t>(run.first_layer + i)],
                              kept_plan.blocks[i], kept, plan_, workspace_);
    const Block<E> block(exec_, shape, BlockTensors<const E>(weights, run, i), state, attention_);
    block.forward(matrix_at<E>(x, {}, shape.tokens(), shape.hidden));
  }
}

void Model::backward(int shard, Buffer x, Buffer gradient, bool accumulate, Buffer kept, Buffer weights) {
  const Shape& shape = layout_.shape;
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const KeptPlan kept_plan = plan_kept(layout_, shard);
  require(x, flow_bytes(shape), "gradient of the hidden state");
  require(kept, kept_plan.bytes, "kept activations");
  require(weights, static_cast<std::size_t>(run.elements) * sizeof(E), "weights of a shard");
  require(gradient, static_cast<std::size_t>(run.elements) * sizeof(E), "gradient of a shard");
  if (!accumulate) clear_gaps(exec_, gradient, run);
  for (int i = run.layers - 1; i >= 0; --i) {
    const BlockState<E> state(shape, shape.ffn[static_cast<std::size_t>(run.first_layer + i)],
                              kept_plan.blocks[i], kept, plan_, workspace_);
    const Block<E> block(exec_, shape, BlockTensors<const E>(weights, run, i), state, attention_);
    block_backward(block, matrix_at<E>(x, {}, shape.tokens(), shape.hidden),
                   BlockTensors<E>(gradient, run, i), accumulate);
  }
}

}  // namespace minitaw::model
