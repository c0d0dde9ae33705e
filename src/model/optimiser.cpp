#include "model/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "model/block.hpp"

namespace minitaw::model {

namespace {

template <class G>
struct ClearPadding {
  static constexpr int most = 16;

  G* gradient;
  Range padding[most];
  std::int64_t longest;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const Range range = padding[i / longest];
    const std::int64_t place = i % longest;
    if (place < range.count) gradient[range.begin + place] = G{};
  }
};

}  // namespace

std::vector<Range> padding_of(std::span<const Tensor> tensors, std::int64_t elements) {
  std::vector<Range> padding;
  std::int64_t end = 0;
  const auto leave = [&](std::int64_t until) {
    if (end < until) padding.push_back({end, until - end});
  };
  for (const Tensor& tensor : tensors) {
    leave(std::min(tensor.offset, elements));
    end = std::max(end, tensor.offset + tensor.size());
  }
  leave(elements);
  return padding;
}

template <class G>
void clear_padding(const kernels::ExecutionSpace& exec, G* gradient, std::span<const Range> padding) {
  using Policy = Kokkos::RangePolicy<kernels::ExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  for (std::size_t first = 0; first < padding.size(); first += ClearPadding<G>::most) {
    const std::size_t count = std::min<std::size_t>(ClearPadding<G>::most, padding.size() - first);
    const std::span<const Range> some = padding.subspan(first, count);
    ClearPadding<G> clear{gradient, {}, std::ranges::max(some, {}, &Range::count).count};
    std::ranges::copy(some, clear.padding);
    const auto items = static_cast<std::int64_t>(count) * clear.longest;
    Kokkos::parallel_for("minitaw::clear_padding", Policy(exec, 0, items), clear);
  }
}

template void clear_padding<float>(const kernels::ExecutionSpace&, float*, std::span<const Range>);
template void clear_padding<Bf16>(const kernels::ExecutionSpace&, Bf16*, std::span<const Range>);

namespace {

kernels::AdamWStep constants(const AdamW& adamw, bool decay, int step) {
  const auto correction = [step](float beta) {
    return static_cast<float>(1 / (1 - std::pow(double{beta}, step)));
  };
  return {adamw.learning_rate,
          adamw.beta1,
          adamw.beta2,
          adamw.epsilon,
          decay ? adamw.decay : 0,
          correction(adamw.beta1),
          correction(adamw.beta2)};
}

template <class T>
Vector<T> elements_of(const Buffer& buffer, std::int64_t begin, std::int64_t count) {
  return Vector<T>(buffer.as<T>() + begin, static_cast<std::size_t>(count));
}

/// use(first, last, decay) for every run of tensors in [begin, end) that agree on decay, and what lies
/// between.
template <class Use>
void for_each_run(const std::vector<Tensor>& tensors, std::int64_t begin, std::int64_t end, const Use& use) {
  for (auto tensor = tensors.begin(); tensor != tensors.end();) {
    const auto next = std::find_if(tensor, tensors.end(), [&](auto& t) { return t.decay != tensor->decay; });
    const Tensor& behind = *std::prev(next);
    const std::int64_t first = std::max(begin, tensor->offset),
                       last = std::min(end, behind.offset + behind.size());
    if (first < last) use(first, last, tensor->decay);
    tensor = next;
  }
}

}  // namespace

void draw(Buffer weights, Buffer master, std::vector<Tensor> tensors, const EmbeddingsPart& part,
          const Shape& shape, std::uint64_t seed) {
  const ExecutionSpace exec;
  for (Tensor& tensor : tensors) tensor.offset -= part.first;
  const std::vector<Range> padding = padding_of(tensors, part.elements);
  with_element(shape.dtype, [&]<class E>(E) {
    const auto some = [](const Buffer& buffer, auto type, std::int64_t begin, std::int64_t count) {
      return buffer.data ? elements_of<decltype(type)>(buffer, begin, count) : Vector<decltype(type)>();
    };
    if (weights.data) clear_padding(exec, weights.as<E>(), padding);
    if (master.data) clear_padding(exec, master.as<float>(), padding);
    for (const Tensor& tensor : tensors) {
      const std::int64_t begin = std::max<std::int64_t>(tensor.offset, 0),
                         count = std::min(tensor.offset + tensor.size(), part.elements) - begin;
      if (count > 0)
        kernels::uniform<E>(exec, some(weights, E{}, begin, count), some(master, float{}, begin, count),
                            begin - tensor.offset, initial_row(tensor, shape, seed));
    }
  });
  exec.fence("minitaw::model::draw");
}

OptimiserState optimiser_state(const Buffer& buffer, Dtype dtype, std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  require(buffer, optimiser_bytes(dtype, elements), "optimiser state");
  OptimiserState state{{buffer.data, bytes}, {buffer.data + bytes, bytes}, {}};
  if (dtype != Dtype::fp32) state.master = {buffer.data + 2 * bytes, bytes};
  return state;
}

/// Elements [begin, end) of a flat buffer, one kernel for every run of tensors with the same decay. Padding
/// inside a run takes part: AdamW leaves zeros as they are. The state begins at `begin`, weights and gradient
/// at `origin`.
template <class E>
void Model::update_range(const std::vector<Tensor>& tensors, std::int64_t begin, std::int64_t end,
                         std::int64_t origin, Buffer weights, const OptimiserState& state, Buffer gradient,
                         const AdamW& adamw, int step) {
  const std::size_t state_bytes = static_cast<std::size_t>(end - begin) * sizeof(float);
  require(state.moment1, state_bytes, "first moment");
  require(state.moment2, state_bytes, "second moment");
  const auto reach = static_cast<std::size_t>(end - origin);
  require(weights, reach * sizeof(E), "weights to update");
  require(gradient, reach * sizeof(float), "gradient of the step");
  // In fp32 the weights are their own master.
  const bool own = std::is_same_v<E, float>;
  const Buffer master = own ? weights : state.master;
  require(master, own ? reach * sizeof(float) : state_bytes, "master weights");
  for_each_run(tensors, begin, end, [&](std::int64_t first, std::int64_t last, bool decay) {
    const std::int64_t count = last - first, at = first - begin, place = first - origin;
    kernels::adamw<E>(
        exec_, elements_of<E>(weights, place, count), elements_of<float>(master, own ? place : at, count),
        elements_of<float>(state.moment1, at, count), elements_of<float>(state.moment2, at, count),
        elements_of<float>(gradient, place, count), constants(adamw, decay, step));
  });
}

void Model::update(int shard, Buffer weights, OptimiserState state, Buffer total, const AdamW& adamw,
                   int step, int slice, int slices) {
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const std::int64_t size = run.elements / slices, begin = slice * size;
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    update_range<E>(run.tensors, begin, begin + size, begin, weights, state, total, adamw, step);
  });
}

void Model::update_embeddings(int slice, Buffer embeddings, OptimiserState state, Buffer embeddings_gradient,
                              const AdamW& adamw, int step) {
  const std::int64_t size = layout_.embeddings.slice, begin = slice * size - embeddings_part_.first;
  if (begin < 0 || begin + size > embeddings_part_.elements)
    throw LogicError(
        fmt::format("slice {} of the embeddings is not in the part that this rank holds", slice));
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    update_range<E>(embeddings_tensors_, begin, begin + size, 0, embeddings, state, embeddings_gradient,
                    adamw, step);
  });
}

}  // namespace minitaw::model
