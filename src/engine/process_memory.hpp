#pragma once

#include <cstdint>

namespace minitaw::engine {

/// Starts a new peak of this process's resident memory, where the system allows it (Linux:
/// /proc/self/clear_refs).
void reset_peak_memory();
/// Peak resident set since then (or since the process began), bytes.
[[nodiscard]] std::uint64_t peak_memory();

/// Bytes that processes on this node may still take: free or held by caches, and within the limits of the
/// control groups (version 2) that this process is in.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace minitaw::engine
