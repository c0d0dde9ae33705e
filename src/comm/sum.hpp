#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/transport.hpp"

namespace minitaw::comm {

[[nodiscard]] std::size_t bytes_of(Scalar scalar);

/// target[i] += other[i] for `elements` values. bf16 adds in float and rounds to nearest even. Buffers must
/// be aligned to the scalar and must not overlap.
void add(Scalar scalar, std::byte* target, const std::byte* other, std::int64_t elements);

}  // namespace minitaw::comm
