#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace minitaw::model {

/// Most segments that a micro-batch can have, and one for their end: elements of sort_positions' `segments`.
[[nodiscard]] std::int64_t most_segments(std::int64_t vocab, std::int64_t tokens);

/// Sorts the positions of a micro-batch by token, so that the embedding's gradient needs no atomics. order
/// [T] receives the positions by token, ascending among equals; segments where the positions of each distinct
/// token begin in it, then T. Returns the elements of `segments` in use.
std::size_t sort_positions(std::span<std::int32_t> order, std::span<std::int32_t> segments,
                           std::span<const std::int32_t> tokens, std::int64_t vocab);

}  // namespace minitaw::model
