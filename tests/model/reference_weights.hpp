#pragma once

#include <vector>

#include "model/data.hpp"
#include "model/reference.hpp"

namespace minitaw::test {

/// The initial weights of all parts of a model, as the reference takes them.
inline model::ReferenceTensors initial_weights(const model::Layout& layout, std::uint64_t seed) {
  model::ReferenceTensors weights = model::reference_zeros(layout);
  const auto fill = [&](std::vector<double>& values, const auto& part) {
    std::vector<float> narrow(values.size());
    model::initialise(narrow, part, layout.shape, seed);
    values.assign(narrow.begin(), narrow.end());
  };
  for (std::size_t s = 0; s < layout.shards.size(); ++s) fill(weights.shards[s], layout.shards[s]);
  fill(weights.embeddings, layout.embeddings);
  return weights;
}

/// One tensor out of a flat buffer.
inline std::vector<double> tensor_of(const std::vector<double>& buffer, const model::Tensor& tensor) {
  const auto begin = buffer.begin() + tensor.offset;
  return {begin, begin + tensor.size()};
}

}  // namespace minitaw::test
