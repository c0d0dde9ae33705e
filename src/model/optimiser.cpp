#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/adamw.hpp"
#include "model/footprint.hpp"
#include "model/model.hpp"

namespace minitaw::model {

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

}  // namespace

OptimiserState optimiser_state(const Buffer& buffer, Dtype dtype, std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  require(buffer, optimiser_bytes(dtype, elements), "optimiser state");
  OptimiserState state{{buffer.data, bytes}, {buffer.data + bytes, bytes}, {}};
  if (dtype != Dtype::fp32) state.master = {buffer.data + 2 * bytes, bytes};
  return state;
}

/// Elements [begin, end) of a flat buffer, tensor by tensor because decay differs; gaps stay as they are. The
/// state begins at `begin`.
void Model::update_range(const std::vector<Tensor>& tensors, std::int64_t begin, std::int64_t end,
                         Buffer weights, const OptimiserState& state, Buffer gradient, const AdamW& adamw,
                         int step) {
  require(state.moment1, static_cast<std::size_t>(end - begin) * sizeof(float), "first moment");
  require(state.moment2, static_cast<std::size_t>(end - begin) * sizeof(float), "second moment");
  require(weights, static_cast<std::size_t>(end) * sizeof(float), "weights to update");
  require(gradient, static_cast<std::size_t>(end) * sizeof(float), "gradient of the step");
  for (const Tensor& tensor : tensors) {
    const std::int64_t first = std::max(begin, tensor.offset),
                       last = std::min(end, tensor.offset + tensor.size());
    if (first >= last) continue;
    const auto part = [count = static_cast<std::size_t>(last - first)](const Buffer& buffer,
                                                                       std::int64_t at) {
      return kernels::Vector<float>(buffer.as<float>() + at, count);
    };
    const auto master = part(weights, first);
    kernels::adamw(exec_, master, master, part(state.moment1, first - begin),
                   part(state.moment2, first - begin), part(gradient, first),
                   constants(adamw, tensor.decay, step));
  }
}

void Model::update(int shard, Buffer weights, OptimiserState state, Buffer total, const AdamW& adamw,
                   int step) {
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  update_range(run.tensors, 0, run.elements, weights, state, total, adamw, step);
}

void Model::update_ends(int slice, Buffer ends, OptimiserState state, Buffer ends_gradient,
                        const AdamW& adamw, int step) {
  const std::int64_t size = layout_.ends.slice;
  update_range(layout_.ends.tensors, slice * size, (slice + 1) * size, ends, state, ends_gradient, adamw,
               step);
}

}  // namespace minitaw::model
