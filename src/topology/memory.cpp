// SPDX-License-Identifier: BSD-3-Clause
#include "topology/memory.hpp"
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <fstream>
#include <limits>
#include <malloc.h>
#include <mutex>
#include <sstream>
#include <unistd.h>
#include "topology/control_groups.hpp"
#include "topology/devices.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
namespace {
namespace fs = std::filesystem;

/// The number after `key` in a file of the kernel; nothing without it, or for "max".
std::optional<std::uint64_t> number_in(const fs::path& file, std::string_view key = "") {
  std::istringstream text(entry_of(file, key).value_or(""));
  std::uint64_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;
}

/// A figure of this process, which the kernel counts in KiB; 0 if it is not known.
std::uint64_t status_bytes(std::string_view key) {
  return 1024 * number_in("/proc/self/status", key).value_or(0);
}

std::uint64_t resident_memory() {
  return status_bytes("VmRSS:");
}

/// Files of a control group's memory, and the entry of memory.stat for what the kernel gives back
/// first. Of version 2 and of version 1.
struct GroupFiles {
  const char *most, *used, *cached;
};

constexpr GroupFiles group_files[] = {{"memory.max", "memory.current", "inactive_file "},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}};

struct OfLabel {
  std::int64_t now = 0;    ///< bytes alive since listen(); below zero if older ones were freed
  std::int64_t begin = 0;  ///< `now` when the watch began
  std::int64_t peak = 0;   ///< largest `now` since then, while the case's memory counts
};

/// Kokkos's allocations, as its callbacks tell them, from any thread.
struct Allocations {
  std::mutex mutex;
  std::map<std::string, OfLabel, std::less<>> labels;
  bool counts = true;                            ///< what is allocated now is the case's
  Kokkos::Tools::Experimental::EventSet tool{};  ///< callbacks of one that Kokkos has loaded
};

Allocations allocations;

/// Kokkos tells of an allocation, or of memory that is freed; a tool is told as well.
template <bool allocated>
void listener(
    Kokkos_Profiling_SpaceHandle space, const char* label, const void* data, std::uint64_t bytes) {
  {
    const std::scoped_lock lock(allocations.mutex);
    OfLabel& of_label = allocations.labels[label];
    of_label.now += (allocated ? 1 : -1) * static_cast<std::int64_t>(bytes);
    if (allocations.counts)
      of_label.peak = std::max(of_label.peak, of_label.now);
  }
  const auto tool = allocated ? allocations.tool.allocate_data : allocations.tool.deallocate_data;
  if (tool != nullptr)
    tool(space, label, data, bytes);
}

/// Asks Kokkos to tell of allocations; again after somebody else has set callbacks of his own.
void listen() {
  using namespace Kokkos::Tools::Experimental;
  const EventSet known = get_callbacks();
  if (known.allocate_data == &listener<true>)
    return;
  allocations.tool = known;
  set_allocate_data_callback(&listener<true>);
  set_deallocate_data_callback(&listener<false>);
}

/// The growth of a figure since the watch began, of each label where it has grown.
BytesByLabel growth(std::int64_t OfLabel::* figure) {
  BytesByLabel growth;
  const std::scoped_lock lock(allocations.mutex);
  for (const auto& [label, of_label] : allocations.labels)
    if (of_label.*figure > of_label.begin)
      growth[label] = of_label.*figure - of_label.begin;
  return growth;
}

void count_allocations(bool on) {
  const std::scoped_lock lock(allocations.mutex);
  allocations.counts = on;
}

std::uint64_t used_on_device() {
  const auto device = device_memory();
  return device ? device->total - device->free : 0;
}

/// Gives back what the C library keeps of freed memory, in small pieces too.
void trim() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}
}  // namespace

FreeMemory available_memory(const fs::path& process) {
  const auto kib = number_in("/proc/meminfo", "MemAvailable:");
  FreeMemory least{kib ? 1024 * *kib : std::numeric_limits<std::uint64_t>::max()};
  for (const fs::path& group : control_groups("memory", process))
    for (const auto& [limit, usage, cache] : group_files) {
      const auto most = number_in(group / limit), used = number_in(group / usage);
      if (!most || !used)
        continue;
      const std::uint64_t cached = number_in(group / "memory.stat", cache).value_or(0);
      const std::uint64_t taken = *used - std::min(*used, cached);
      if (const std::uint64_t left = *most - std::min(*most, taken); left < least.bytes)
        least = {left, group / limit};
    }
  return least;
}

bool reset_peak_memory() {
  std::ofstream("/proc/self/clear_refs") << "5";  // 5: forget the high-water mark (man 5 proc)
  // The kernel counts pages of each thread apart and adds them up now and then.
  const std::uint64_t inexact = 1024 * sysconf(_SC_PAGESIZE);
  return peak_memory() <= resident_memory() + inexact;
}

std::uint64_t peak_memory() {
  return status_bytes("VmHWM:");
}

void return_freed_memory() {
#if defined(__GLIBC__)
  // Fixed, because a threshold that follows what was freed puts later arenas on the heap, which
  // keeps them.
  constexpr int block = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, block);
  mallopt(M_TRIM_THRESHOLD, block);
#endif
}

MemoryWatch::MemoryWatch() {
  listen();
  trim();
  process_begin_ = reset_peak_memory() ? resident_memory() : 0;
  device_begin_ = used_on_device();
  const std::scoped_lock lock(allocations.mutex);
  for (auto& [label, of_label] : allocations.labels)
    of_label.peak = of_label.begin = of_label.now;
}

void MemoryWatch::leave_out(const std::function<void()>& work) {
  process_peak_ = std::max(process_peak_, peak_memory());
  count_allocations(false);
  work();
  count_allocations(true);
  trim();
  (void)reset_peak_memory();
}

MemoryTaken MemoryWatch::taken() const {
  return {.kokkos = growth(&OfLabel::peak),
      .process_begin = process_begin_,
      .process_peak = std::max(process_peak_, peak_memory()),
      .device_begin = device_begin_,
      .device_used = used_on_device()};
}

BytesByLabel MemoryWatch::kept() const {
  return growth(&OfLabel::now);
}

std::uint64_t MemoryWatch::process_growth() const {
  trim();
  const std::uint64_t now = resident_memory();
  return process_begin_ > 0 && now > process_begin_ ? now - process_begin_ : 0;
}
}  // namespace minitaw::topology
