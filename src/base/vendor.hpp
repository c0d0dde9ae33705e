// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <stdexcept>
#include <string_view>

/// MINITAW_VENDOR(EventRecord) is cudaEventRecord or hipEventRecord: HIP calls everything as CUDA
/// does, but for the first letters. Not defined on hosts, and for devices that only Kokkos knows.
#if defined(MINITAW_CUDA)
#include <cuda_runtime_api.h>
#define MINITAW_VENDOR(name) cuda##name
#define MINITAW_VENDOR_NAME "CUDA"
#elif defined(MINITAW_HIP)
#include <hip/hip_runtime_api.h>
#define MINITAW_VENDOR(name) hip##name
#define MINITAW_VENDOR_NAME "HIP"
#endif

#ifdef MINITAW_VENDOR
namespace minitaw::vendor {
using Stream = MINITAW_VENDOR(Stream_t);

/// Throws std::runtime_error "what: the runtime's own words" unless `code` is success.
inline void check(MINITAW_VENDOR(Error_t) code, std::string_view what) {
  if (code == MINITAW_VENDOR(Success))
    return;
  (void)MINITAW_VENDOR(GetLastError)();
  throw std::runtime_error(fmt::format("{}: {} ({})",
      what,
      MINITAW_VENDOR(GetErrorString)(code),
      MINITAW_VENDOR(GetErrorName)(code)));
}

/// MINITAW_CALL(EventRecord, event, stream): throws if it fails, and says what did.
#define MINITAW_CALL(name, ...) ::minitaw::vendor::check(MINITAW_VENDOR(name)(__VA_ARGS__), #name)

/// The stream of an execution space of Kokkos.
template <class ExecutionSpace>
Stream stream_of(const ExecutionSpace& exec) {
  return exec.MINITAW_VENDOR(_stream)();  // cuda_stream() or hip_stream()
}
}  // namespace minitaw::vendor
#endif
