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

namespace {

EndsPart inside(const Ends& ends, EndsPart part) {
  if (part.elements == EndsPart::rest) part.elements = ends.elements - part.first;
  if (part.first < 0 || part.elements < 0 || part.first + part.elements > ends.elements)
    throw LogicError(
        fmt::format("{} elements from {} of ends that have {}", part.elements, part.first, ends.elements));
  return part;
}

}  // namespace

Model::Model(ExecutionSpace exec, Layout layout, double loss_scale, Buffer workspace,
             kernels::Attention attention, EndsPart ends_part)
    : exec_(std::move(exec)), layout_(std::move(layout)), loss_scale_(loss_scale), workspace_(workspace),
      attention_(attention), ends_part_(inside(layout_.ends, ends_part)), ends_tensors_(layout_.ends.tensors),
      plan_(plan_workspace(layout_)) {
  require(workspace_, plan_.bytes, "workspace");
  for (Tensor& tensor : ends_tensors_) tensor.offset -= ends_part_.first;
  for (int shard = 0; shard < static_cast<int>(layout_.shards.size()); ++shard) {
    kept_.push_back(plan_kept(layout_, shard));
    stash_.push_back(plan_stash(layout_, shard));
    const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
    gaps_.push_back(gaps_of(run.tensors, run.elements));
  }
  ends_gaps_ = gaps_of(ends_tensors_, ends_part_.elements);
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

void Model::require_gradient(int shard, Buffer gradient, Dtype type) const {
  const std::int64_t elements = layout_.shards[static_cast<std::size_t>(shard)].elements;
  require(gradient, static_cast<std::size_t>(elements) * bytes_of(type), "gradient of a shard");
}

template <class E>
Block<E> Model::block(int shard, int index, Buffer kept, Buffer stash, Buffer weights) const {
  const Shape& shape = layout_.shape;
  const auto s = static_cast<std::size_t>(shard), i = static_cast<std::size_t>(index);
  const Shard& run = layout_.shards[s];
  const StashRegions unsplit;
  const BlockState<E> state(
      shape, shape.ffn[static_cast<std::size_t>(run.first_layer + index)],
      {kept_[s].blocks[i], kept, stash.data ? stash_[s].blocks[i] : unsplit, stash, plan_, workspace_});
  const BlockTensors<const E> tensors = weights.data ? BlockTensors<const E>(weights, run, index)
                                                     : BlockTensors<const E>(state.norm1, state.norm2);
  return Block<E>(exec_, shape, tensors, state, attention_);
}

template <class E>
Matrix<E> Model::output_gradient(int shard, int index, Buffer stash) const {
  const Region& region =
      stash_[static_cast<std::size_t>(shard)].blocks[static_cast<std::size_t>(index)].output_gradient;
  return matrix_at<E>(stash, region, layout_.shape.tokens(), layout_.shape.hidden);
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
  for (int i = 0; i < blocks; ++i) block<E>(shard, i, kept, {}, weights).forward(hidden);
}

namespace {

/// use(E{}, G{}) with the compute type E and the type G of a gradient.
template <class Use>
void with_gradient(Dtype compute, Dtype gradient, const Use& use) {
  with_element(compute, [&]<class E>(E) {
    if (gradient == Dtype::fp32) use(E{}, float{});
    else if (std::is_same_v<E, Bf16>) use(E{}, E{});
    else throw LogicError("a gradient in bf16 of a model in fp32");
  });
}

}  // namespace

void Model::backward(int shard, Buffer x, Buffer gradient, Dtype gradient_type, bool accumulate, Buffer kept,
                     Buffer weights) {
  require_visit(shard, x, kept, weights);
  require_gradient(shard, gradient, gradient_type);
  with_gradient(layout_.shape.dtype, gradient_type, [&]<class E, class G>(E, G) {
    backward_as<E, G>(shard, x, gradient, accumulate, kept, weights);
  });
}

template <class E, class G>
void Model::backward_as(int shard, Buffer x, Buffer gradient, bool accumulate, Buffer kept, Buffer weights) {
  const Shape& shape = layout_.shape;
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const auto slope = matrix_at<E>(x, {}, shape.tokens(), shape.hidden);
  if (!accumulate) clear_gaps(exec_, gradient.as<G>(), gaps_[static_cast<std::size_t>(shard)]);
  for (int i = run.layers - 1; i >= 0; --i)
    block_backward(block<E>(shard, i, kept, {}, weights), slope, BlockTensors<G>(gradient, run, i),
                   accumulate);
}

void Model::backward_input(int shard, Buffer x, Buffer kept, Buffer stash, Buffer weights) {
  require_visit(shard, x, kept, weights);
  require(stash, stash_[static_cast<std::size_t>(shard)].bytes, "stash of a backward pass");
  with_element(layout_.shape.dtype,
               [&]<class E>(E) { backward_input_as<E>(shard, x, kept, stash, weights); });
}

/// Each block writes the gradient at its input where the block before it stashes the one at its output.
template <class E>
void Model::backward_input_as(int shard, Buffer x, Buffer kept, Buffer stash, Buffer weights) {
  const Shape& shape = layout_.shape;
  const auto slope = matrix_at<E>(x, {}, shape.tokens(), shape.hidden);
  const int last = layout_.shards[static_cast<std::size_t>(shard)].layers - 1;
  Kokkos::deep_copy(exec_, output_gradient<E>(shard, last, stash), slope);
  for (int i = last; i >= 0; --i)
    block_backward_input(block<E>(shard, i, kept, stash, weights),
                         i > 0 ? output_gradient<E>(shard, i - 1, stash) : slope,
                         output_gradient<E>(shard, i, stash));
}

void Model::backward_weight(int shard, Buffer gradient, Dtype gradient_type, bool accumulate, Buffer kept,
                            Buffer stash) {
  require(kept, kept_[static_cast<std::size_t>(shard)].bytes, "kept activations");
  require(stash, stash_[static_cast<std::size_t>(shard)].bytes, "stash of a backward pass");
  require_gradient(shard, gradient, gradient_type);
  with_gradient(layout_.shape.dtype, gradient_type, [&]<class E, class G>(E, G) {
    backward_weight_as<E, G>(shard, gradient, accumulate, kept, stash);
  });
}

template <class E, class G>
void Model::backward_weight_as(int shard, Buffer gradient, bool accumulate, Buffer kept, Buffer stash) {
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  if (!accumulate) clear_gaps(exec_, gradient.as<G>(), gaps_[static_cast<std::size_t>(shard)]);
  for (int i = run.layers - 1; i >= 0; --i)
    block_backward_weight(block<E>(shard, i, kept, stash, {}), output_gradient<E>(shard, i, stash),
                          BlockTensors<G>(gradient, run, i), accumulate);
}

}  // namespace minitaw::model
