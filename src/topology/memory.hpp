// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

/// Memory is measured here: what is free, and what a process and its cases take; of a device by
/// device_memory(). Sizes are bytes.
namespace minitaw::topology {
/// Bytes that a process may still take.
struct FreeMemory {
  std::uint64_t bytes = 0;
  std::string limit{};  ///< file of the control group that allows no more; empty: there is no more
};

/// Returns what is free on this node or in caches, within the limits of this process's control
/// groups. `process`: as for control_groups().
FreeMemory available_memory(const std::filesystem::path& process = "/proc/self");
/// Starts a new peak of this process's resident memory; returns whether Linux allows it
/// (/proc/self/clear_refs).
bool reset_peak_memory();
/// Returns the peak resident set since reset_peak_memory(), or the process's begin; 0: not known.
std::uint64_t peak_memory();
/// Makes the C library return large blocks to the kernel when they are freed, so that the resident
/// set of a process says what it uses. Called once, before there are any.
void return_freed_memory();

using BytesByLabel = std::map<std::string, std::uint64_t>;

/// Memory that a process takes during a case, beyond what it had when the case began.
struct MemoryTaken {
  BytesByLabel kokkos;              ///< most that Kokkos had allocated under a label at a time
  std::uint64_t process_begin = 0;  ///< resident set when the case began; 0: no peak is known
  std::uint64_t process_peak = 0;   ///< largest resident set since
  std::uint64_t device_begin = 0;   ///< in use by all processes when the case began; 0: not known
  std::uint64_t device_used = 0;    ///< in use now; 0: no device
};

/// Measures what a case takes from its construction on: asks Kokkos (its allocation callbacks, from
/// the first watch on), the kernel and the device, never the plan. One at a time.
class MemoryWatch {
public:
  MemoryWatch();
  /// Runs `work`, whose memory is not the case's; all of it is gone afterwards.
  void leave_out(const std::function<void()>& work);
  MemoryTaken taken() const;
  /// Returns what Kokkos still holds of what it has allocated since the watch began.
  BytesByLabel kept() const;
  /// Returns how much the resident set has grown since the watch began; 0: not at all, or not
  /// known.
  std::uint64_t process_growth() const;

private:
  std::uint64_t process_begin_ = 0, process_peak_ = 0, device_begin_ = 0;
};
}  // namespace minitaw::topology
