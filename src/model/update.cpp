// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <type_traits>
#include "base/error.hpp"
#include "model/model.hpp"

namespace minitaw::model {
OptimiserState::OptimiserState(const Buffer& buffer, Dtype dtype, std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  const auto part = [&](int index) {
    return Buffer{buffer.at<std::byte>(index * bytes, bytes), bytes};
  };
  moment1 = part(0);
  moment2 = part(1);
  if (dtype != Dtype::fp32)
    master = part(2);
}

/// The tensors in `range` of a flat buffer, whose state begins there, weights and gradient at
/// `origin`.
void Model::update_range(const std::vector<Tensor>& tensors,
    Range range,
    std::int64_t origin,
    const UpdateBuffers& o,
    const AdamW& adamw,
    int step) {
  const std::int64_t end = range.begin + range.count;
  const OptimiserState parts(o.state, layout_.shape.dtype, range.count);
  AdamW of_gains = adamw;
  of_gains.decay = 0;
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    for (const Tensor& tensor : tensors) {
      const std::int64_t first = std::max(range.begin, tensor.offset),
                         count = std::min(end, tensor.offset + tensor.size()) - first,
                         at = first - range.begin, place = first - origin;
      if (count <= 0)
        continue;
      const auto own = elements_of<E>(o.weights, place, count);
      Vector<float> master;
      if constexpr (std::is_same_v<E, float>)
        master = own;
      else
        master = elements_of<float>(parts.master, at, count);
      kernels::adamw<E>(exec_,
          own,
          master,
          elements_of<float>(parts.moment1, at, count),
          elements_of<float>(parts.moment2, at, count),
          elements_of<float>(o.gradient, place, count),
          tensor.is_gain() ? of_gains : adamw,
          step,
          o.squares.as<const float>());
    }
  });
}

void Model::square(Buffer squares, Buffer gradient, bool accumulate) {
  static_assert(squares_bytes == squares_scratch + kernels::most_square_partials * sizeof(double));
  const auto count = static_cast<std::int64_t>(gradient.bytes / sizeof(float));
  kernels::add_squares(exec_,
      squares.as<float>(),
      Buffer{squares.data + squares_scratch, squares.bytes - squares_scratch}.as<double>(),
      elements_of<float>(gradient, 0, count),
      accumulate);
}

void Model::update(int shard, Part part, const UpdateBuffers& o, const AdamW& adamw, int step) {
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const Range range = range_of(run.elements, part);
  update_range(run.tensors, range, range.begin, o, adamw, step);
}

void Model::update_embeddings(int part, const UpdateBuffers& o, const AdamW& adamw, int step) {
  const std::int64_t size = layout_.embeddings.part, begin = part * size - embeddings_part_.begin;
  if (begin < 0 || begin + size > embeddings_part_.count)
    throw LogicError("part {} of the embeddings is not in what this rank holds", part);
  update_range(embeddings_.tensors, {begin, size}, 0, o, adamw, step);
}
}  // namespace minitaw::model
