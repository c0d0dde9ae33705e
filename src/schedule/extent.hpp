#pragma once

#include <cstddef>
#include <cstdint>

#include "model/layout.hpp"
#include "schedule/program.hpp"

namespace minitaw::schedule {

/// A run of elements of the flat buffer of a shard or of the ends, or of a hidden state.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// What a communication action, add or load is about.
[[nodiscard]] Extent moved(const Action& action, const model::Layout& layout);

/// Bytes of an element in a slot of weights, gradients or hidden states: totals are fp32, all else has the
/// compute precision.
[[nodiscard]] std::size_t element_bytes(SlotClass cls, model::Dtype dtype);

/// What a slot of the rank holds that belongs to `shard` (ignored for the ends): all of it, or the slice that
/// the rank keeps. For slots of weights and gradients only.
[[nodiscard]] Extent held(const Program& program, int rank, SlotClass cls, int shard,
                          const model::Layout& layout);

}  // namespace minitaw::schedule
