#pragma once

#include <span>
#include <vector>

#include "kernels/types.hpp"
#include "model/layout.hpp"

namespace minitaw::model {

/// Elements between two tensors of a flat buffer, or behind the last.
struct Gap {
  std::int64_t begin = 0;
  std::int64_t elements = 0;
};

/// What `tensors`, in ascending order, leave of a buffer of `elements`; they may reach beyond both of its
/// ends. Between tensors there are none where all sizes are multiples of `alignment`, as they are in models
/// worth training.
[[nodiscard]] std::vector<Gap> gaps_of(std::span<const Tensor> tensors, std::int64_t elements);

/// Zeros in the gaps of a gradient: they travel and are summed, so they must not hold what another shard
/// left. One kernel for every 16 gaps, which it carries along, so that no table is needed.
template <class G>
void clear_gaps(const kernels::ExecutionSpace& exec, G* gradient, std::span<const Gap> gaps);

}  // namespace minitaw::model
