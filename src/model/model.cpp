#include "model/model.hpp"

#include <fmt/format.h>

#include <type_traits>

#include "base/error.hpp"
#include "kernels/library.hpp"
#include "kernels/rope.hpp"
#include "model/block.hpp"
#include "model/element.hpp"
#include "model/footprint.hpp"
#include "model/views.hpp"

namespace minitaw::model {

void require(const Buffer& buffer, std::size_t bytes, std::string_view what) {
  if (buffer.data == nullptr || buffer.bytes < bytes)
    throw LogicError(fmt::format("{} has {} bytes where {} are needed", what, buffer.bytes, bytes));
}

Model::Model(ExecutionSpace exec, Layout layout, double loss_scale, Buffer workspace,
             kernels::Attention attention)
    : exec_(std::move(exec)), layout_(std::move(layout)), loss_scale_(loss_scale), workspace_(workspace),
      attention_(attention), plan_(plan_workspace(layout_)) {
  require(workspace_, plan_.bytes, "workspace");
  for (int shard = 0; shard < static_cast<int>(layout_.shards.size()); ++shard) {
    kept_.push_back(plan_kept(layout_, shard));
    gaps_.push_back(gaps_of(layout_.shards[static_cast<std::size_t>(shard)]));
  }
  with_element(layout_.shape.dtype, [&]<class E>(E) { ready<E>(); });
}

template <class E>
void Model::ready() {
  attention_ = kernels::resolve_attention<E>(attention_, attention_sizes(layout_.shape));
  kernels::prepare(exec_);
  kernels::attention_prepare<E>(exec_, attention_sizes(layout_.shape), attention_);
  kernels::rope_table(exec_,
                      matrix_at<float>(workspace_, plan_.rope, layout_.shape.seq, layout_.shape.head_dim()));
}

std::size_t Model::bytes(std::int64_t elements) const {
  return static_cast<std::size_t>(elements) * bytes_of(layout_.shape.dtype);
}

void Model::require_visit(int shard, Buffer x, Buffer kept, Buffer weights) const {
  require(x, flow_bytes(layout_.shape), "hidden state or its gradient");
  require(kept, kept_[static_cast<std::size_t>(shard)].bytes, "kept activations");
  require(weights, bytes(layout_.shards[static_cast<std::size_t>(shard)].elements), "weights of a shard");
}

template <class E>
Block<E> Model::block(int shard, int index, Buffer kept, Buffer weights) const {
  const Shape& shape = layout_.shape;
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const BlockState<E> state(shape, shape.ffn[static_cast<std::size_t>(run.first_layer + index)],
                            kept_[static_cast<std::size_t>(shard)].blocks[static_cast<std::size_t>(index)],
                            kept, plan_, workspace_);
  return Block<E>(exec_, shape, BlockTensors<const E>(weights, run, index), state, attention_);
}

void Model::forward(int shard, Buffer x, Buffer kept, Buffer weights) {
  require_visit(shard, x, kept, weights);
  with_element(layout_.shape.dtype, [&]<class E>(E) { forward_as<E>(shard, x, kept, weights); });
}

template <class E>
void Model::forward_as(int shard, Buffer x, Buffer kept, Buffer weights) {
  const Shape& shape = layout_.shape;
  const auto hidden = matrix_at<E>(x, {}, shape.tokens(), shape.hidden);
  const int blocks = layout_.shards[static_cast<std::size_t>(shard)].layers;
  for (int i = 0; i < blocks; ++i) block<E>(shard, i, kept, weights).forward(hidden);
}

void Model::backward(int shard, Buffer x, Buffer gradient, Dtype gradient_type, bool accumulate, Buffer kept,
                     Buffer weights) {
  const std::int64_t elements = layout_.shards[static_cast<std::size_t>(shard)].elements;
  require_visit(shard, x, kept, weights);
  require(gradient, static_cast<std::size_t>(elements) * bytes_of(gradient_type), "gradient of a shard");
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    if (gradient_type == Dtype::fp32) backward_as<E, float>(shard, x, gradient, accumulate, kept, weights);
    else if (std::is_same_v<E, Bf16>) backward_as<E, E>(shard, x, gradient, accumulate, kept, weights);
    else throw LogicError("a gradient in bf16 of a model in fp32");
  });
}

template <class E, class G>
void Model::backward_as(int shard, Buffer x, Buffer gradient, bool accumulate, Buffer kept, Buffer weights) {
  const Shape& shape = layout_.shape;
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const auto slope = matrix_at<E>(x, {}, shape.tokens(), shape.hidden);
  if (!accumulate) clear_gaps(exec_, gradient.as<G>(), gaps_[static_cast<std::size_t>(shard)]);
  for (int i = run.layers - 1; i >= 0; --i)
    block_backward(block<E>(shard, i, kept, weights), slope, BlockTensors<G>(gradient, run, i), accumulate);
}

}  // namespace minitaw::model
