// SPDX-License-Identifier: BSD-3-Clause
// A tool library of Kokkos: KOKKOS_TOOLS_LIBS=libminitaw_kernel_times.so MINITAW_KERNEL_TIMES=FILE
// minitaw run ... CUPTI says when each kernel of the device began and ended, Kokkos which of ours
// it is; FILE gets both at the end.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cupti.h>
#include <cxxabi.h>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "timeline.hpp"

// Kokkos looks the functions up by name; its header is left out because it would bring nvcc's flags
// with it.
struct Kokkos_Tools_ToolSettings {
  bool requires_global_fencing;
  bool padding[255];
};

namespace {
using minitaw::kernel_times::Activity;

constexpr std::uint64_t bound = 2000;  // ns
constexpr std::size_t buffer_bytes = 8 << 20;
constexpr auto ours = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

/// Filled by the threads that launch and by CUPTI's own.
struct {
  std::mutex mutex;
  std::vector<Activity> activities;
  std::vector<std::uint32_t> correlations;                    ///< of the activities
  std::unordered_map<std::uint32_t, std::uint64_t> label_of;  ///< by correlation
  std::map<std::string, std::uint64_t> number_of;             ///< labels, numbered as they come
  bool broken = false;
} seen;

/// Without CUPTI's answer there is nothing to report, but the program goes on.
bool good(CUptiResult result, const char* doing) {
  if (result == CUPTI_SUCCESS)
    return true;
  const char* reason = "unknown error";
  cuptiGetResultString(result, &reason);
  const std::lock_guard lock(seen.mutex);
  if (!seen.broken)
    std::fprintf(stderr, "minitaw_kernel_times: CUPTI failed at %s: %s\n", doing, reason);
  seen.broken = true;
  return false;
}

/// Of a kernel that is not Kokkos's: its name without template arguments and parameters.
std::string plain_name(const char* mangled) {
  if (!mangled)
    return "kernel without a name";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> full(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string name = full ? full.get() : mangled;
  name.resize(std::min(name.find_first_of("<("), name.size()));
  if (const auto space = name.rfind(' '); space != std::string::npos)
    name.erase(0, space + 1);
  return name.empty() ? mangled : name;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
  *size = *buffer ? buffer_bytes : 0;
  *records = 0;
}

template <class Record>
void note(std::string name, const CUpti_Activity* record) {
  const auto& found = *reinterpret_cast<const Record*>(record);
  seen.activities.push_back({std::move(name), found.start, found.end});
  seen.correlations.push_back(found.correlationId);
}

void take(const CUpti_Activity* record) {
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    using Kernel = CUpti_ActivityKernel9;
    note<Kernel>(plain_name(reinterpret_cast<const Kernel*>(record)->name), record);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    note<CUpti_ActivityMemcpy5>("copy", record);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    note<CUpti_ActivityMemset4>("fill", record);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
    const auto& link = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
    seen.label_of[link.correlationId] = link.externalId;
  }
}

void CUPTIAPI take_buffer(
    CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  {
    const std::lock_guard lock(seen.mutex);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS)
      take(record);
  }
  std::free(buffer);
}

/// A label of Kokkos, for what the thread launches until it is taken back.
void begin(const char* label) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(seen.mutex);
    if (seen.broken)
      return;
    number = seen.number_of.emplace(label, seen.number_of.size()).first->second;
  }
  good(cuptiActivityPushExternalCorrelationId(ours, number), "naming a kernel");
}

void end() {
  std::uint64_t number = 0;
  (void)cuptiActivityPopExternalCorrelationId(ours, &number);
}
}  // namespace

extern "C" {

void kokkosp_request_tool_settings(std::uint32_t, Kokkos_Tools_ToolSettings* settings) {
  settings->requires_global_fencing = false;  // it would stop the host after each kernel
}

void kokkosp_init_library(int, std::uint64_t, std::uint32_t, void*) {
  if (!good(cuptiActivityRegisterCallbacks(give_buffer, take_buffer), "the start"))
    return;
  // By its header CUPTI writes a label's record before that of the call in whose region it was
  // made: without records of the runtime's calls, with which Kokkos launches, no label may come.
  for (const auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
           CUPTI_ACTIVITY_KIND_MEMCPY,
           CUPTI_ACTIVITY_KIND_MEMSET,
           CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
           CUPTI_ACTIVITY_KIND_RUNTIME})
    good(cuptiActivityEnable(kind), "the start");
}

void kokkosp_begin_parallel_for(const char* label, std::uint32_t, std::uint64_t*) {
  begin(label);
}

void kokkosp_end_parallel_for(std::uint64_t) {
  end();
}

void kokkosp_begin_parallel_reduce(const char* label, std::uint32_t, std::uint64_t*) {
  begin(label);
}

void kokkosp_end_parallel_reduce(std::uint64_t) {
  end();
}

void kokkosp_finalize_library() {
  good(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "the end");
  const std::lock_guard lock(seen.mutex);
  // Kernels of Kokkos by their labels, the others by their own names.
  std::vector<std::string> labels(seen.number_of.size());
  for (const auto& [label, number] : seen.number_of)
    labels[number] = label;
  for (std::size_t i = 0; i < seen.activities.size(); ++i)
    if (const auto link = seen.label_of.find(seen.correlations[i]); link != seen.label_of.end())
      seen.activities[i].name = labels[link->second];
  const char* const variable = std::getenv("MINITAW_KERNEL_TIMES");
  const char* const path = variable ? variable : "kernel_times.md";
  std::ofstream file(path);
  file << minitaw::kernel_times::report(
      minitaw::kernel_times::summarize(seen.activities, bound), bound);
  if (!file.flush())
    std::fprintf(stderr, "minitaw_kernel_times: %s cannot be written\n", path);
}
}
