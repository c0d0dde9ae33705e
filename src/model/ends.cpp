#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/embedding.hpp"
#include "kernels/linear.hpp"
#include "kernels/rmsnorm.hpp"
#include "model/element.hpp"
#include "model/footprint.hpp"
#include "model/model.hpp"
#include "model/views.hpp"

namespace minitaw::model {

namespace {

void require(const MicroBatch& batch, const Shape& shape) {
  if (batch.inputs().size() != static_cast<std::size_t>(shape.tokens()) || batch.segments().empty())
    throw LogicError(fmt::format("a micro-batch of {} tokens in {} segments where there must be {} tokens",
                                 batch.inputs().size(), batch.segments().size(), shape.tokens()));
}

}  // namespace

const Tensor& Model::ends_tensor(Role role) const {
  const Tensor& tensor =
      ends_tensors_[static_cast<std::size_t>(static_cast<int>(role) - static_cast<int>(Role::embedding))];
  if (tensor.offset < 0 || tensor.offset + tensor.size() > ends_part_.elements)
    throw LogicError(fmt::format("{} is not in the part of the ends that this rank holds", tensor.name));
  return tensor;
}

void Model::require_ends(Buffer x, Buffer ends) const {
  require(x, flow_bytes(layout_.shape), "hidden state");
  require(ends, bytes(ends_part_.elements), "weights of the ends");
}

void Model::require_ends_gradient(Buffer ends_gradient) const {
  require(ends_gradient, static_cast<std::size_t>(ends_part_.elements) * sizeof(float),
          "gradient of the ends");
}

/// Asynchronous because the source is pinned.
Vector<std::int32_t> Model::upload(const Region& region, MicroBatch::Tokens pinned) {
  using Pinned = Kokkos::View<const std::int32_t*, Kokkos::LayoutRight, PinnedSpace,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const auto target = vector_at<std::int32_t>(workspace_, region, static_cast<std::int64_t>(pinned.size()));
  Kokkos::deep_copy(exec_, target, Pinned(pinned.data(), pinned.size()));
  return target;
}

void Model::embed(Buffer x, Buffer ends, const MicroBatch& batch) {
  const Shape& shape = layout_.shape;
  require_ends(x, ends);
  require(batch, shape);
  const Vector<std::int32_t> tokens = upload(plan_.tokens, batch.inputs());
  with_element(shape.dtype, [&]<class E>(E) {
    kernels::embedding_forward(exec_, matrix_at<E>(x, {}, shape.tokens(), shape.hidden),
                               matrix_of<const E>(ends, ends_tensor(Role::embedding)), tokens);
  });
}

/// Written: zeros first, because the rows of tokens that the micro-batch lacks are part of the gradient.
void Model::embed_backward(Buffer ends_gradient, bool accumulate, Buffer x, const MicroBatch& batch) {
  const Shape& shape = layout_.shape;
  require(x, flow_bytes(shape), "gradient of the hidden state");
  require_ends_gradient(ends_gradient);
  require(batch, shape);
  const Vector<std::int32_t> index = upload(plan_.index, batch.index());
  const auto part = [&](MicroBatch::Tokens tokens) {
    return kernels::TokensIn(index.data() + (tokens.data() - batch.index().data()), tokens.size());
  };
  const auto gradient = matrix_of<float>(ends_gradient, ends_tensor(Role::embedding));
  if (!accumulate) {
    clear_gaps(exec_, ends_gradient.as<float>(), ends_gaps_);
    Kokkos::deep_copy(exec_, gradient, 0.0F);
  }
  with_element(shape.dtype, [&]<class E>(E) {
    kernels::embedding_backward<E>(exec_, gradient, matrix_at<E>(x, {}, shape.tokens(), shape.hidden),
                                   part(batch.inputs()), part(batch.order()), part(batch.segments()));
  });
}

void Model::loss(Buffer x, Buffer ends_gradient, bool accumulate, double* loss, Buffer ends,
                 const MicroBatch& batch) {
  const Shape& shape = layout_.shape;
  require_ends(x, ends);
  require_ends_gradient(ends_gradient);
  require(batch, shape);
  upload(plan_.tokens, batch.targets());
  if (!accumulate) clear_gaps(exec_, ends_gradient.as<float>(), ends_gaps_);
  const std::int64_t slice = loss_slice(shape);
  with_element(shape.dtype, [&]<class E>(E) {
    for (std::int64_t begin = 0; begin < shape.tokens(); begin += slice)
      loss_of_slice<E>(x, ends_gradient, accumulate || begin > 0, loss, ends, begin,
                       std::min(slice, shape.tokens() - begin));
  });
}

template <class E>
void Model::loss_of_slice(Buffer x, Buffer ends_gradient, bool accumulate, double* loss, Buffer ends,
                          std::int64_t begin, std::int64_t rows) {
  const Shape& shape = layout_.shape;
  const Tensor& norm = ends_tensor(Role::norm);
  const Tensor& head = ends_tensor(Role::head);
  const auto gain = vector_of<const E>(ends, norm);
  const auto weight = matrix_of<const E>(ends, head);
  const Matrix<E> hidden(x.as<E>() + begin * shape.hidden, static_cast<std::size_t>(rows),
                         static_cast<std::size_t>(shape.hidden));
  const auto targets = vector_at<std::int32_t>(workspace_, plan_.tokens, shape.tokens());
  const kernels::TokensIn wanted(targets.data() + begin, static_cast<std::size_t>(rows));
  const auto normed = matrix_at<E>(workspace_, plan_.slice_normed, rows, shape.hidden);
  const auto slope = matrix_at<E>(workspace_, plan_.slice_gradient, rows, shape.hidden);
  const auto rstd = vector_at<float>(workspace_, plan_.slice_rstd, rows);
  const auto logits = matrix_at<E>(workspace_, plan_.slice_logits, rows, shape.vocab);
  const auto losses = vector_at<double>(workspace_, plan_.slice_losses, rows);
  const auto partial =
      matrix_at<float>(workspace_, plan_.gain_partial, kernels::rmsnorm_chunks(rows), shape.hidden);

  kernels::rmsnorm_forward(exec_, normed, rstd, {}, hidden, gain);
  kernels::linear_forward(exec_, logits, normed, weight);
  kernels::cross_entropy(exec_, losses, logits, wanted, static_cast<float>(loss_scale_));
  kernels::sum_losses(exec_, loss, losses, loss_scale_);
  kernels::linear_backward_input(exec_, slope, logits, weight);
  kernels::linear_backward_weight(exec_, matrix_of<float>(ends_gradient, head), Matrix<const E>(logits),
                                  normed, accumulate);
  kernels::rmsnorm_backward(exec_, hidden, partial, slope, {}, hidden, rstd, gain);
  kernels::rmsnorm_backward_gain(exec_, vector_of<float>(ends_gradient, norm), partial, accumulate);
}

}  // namespace minitaw::model
