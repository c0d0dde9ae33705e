#pragma once

#include <cstdint>

namespace minitaw::engine {

/// Starts a new peak of this process's resident memory, where the system allows it (Linux:
/// /proc/self/clear_refs).
void reset_peak_memory();
/// Peak resident set since then (or since the process began), bytes.
[[nodiscard]] std::uint64_t peak_memory();

}  // namespace minitaw::engine
