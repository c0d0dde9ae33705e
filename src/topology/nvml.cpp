// SPDX-License-Identifier: BSD-3-Clause
#include "topology/nvml.hpp"
#include <array>
#include <dlfcn.h>
#include <fmt/format.h>
#include <stdexcept>

namespace minitaw::nvml {
namespace {
/// Leaves null what the library lacks under every name.
template <class Function, class... Names>
void find(void* file, Function*& function, Names... names) {
  for (const char* name : {names...})
    if (function == nullptr)
      function = reinterpret_cast<Function*>(dlsym(file, name));
}

Functions functions_of(void* file) {
  Functions f{};
  find(file, f.init, "nvmlInit_v2");
  find(file, f.shutdown, "nvmlShutdown");
  find(file, f.error_string, "nvmlErrorString");
  find(file, f.library_version, "nvmlSystemGetNVMLVersion");
  find(file, f.driver_version, "nvmlSystemGetDriverVersion");
  find(file, f.device_by_uuid, "nvmlDeviceGetHandleByUUID");
  find(file, f.mig_mode, "nvmlDeviceGetMigMode");
  find(file, f.clock, "nvmlDeviceGetClockInfo");
  find(file, f.temperature, "nvmlDeviceGetTemperature");
  find(file, f.power, "nvmlDeviceGetPowerUsage");
  find(file,
      f.throttle_reasons,
      "nvmlDeviceGetCurrentClocksEventReasons",
      "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(file, f.energy, "nvmlDeviceGetTotalEnergyConsumption");
  return f;
}

std::string ask_once(const char* file, int (*Functions::*question)(char*, unsigned)) {
  try {
    return version(Library(file).call().*question);
  } catch (const std::runtime_error&) {
    return {};
  }
}
}  // namespace

Library::Library(const char* file) : file_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (file_ == nullptr)
    throw std::runtime_error(fmt::format("no {} (it comes with NVIDIA's driver)", file));
  const Functions& f = functions_ = functions_of(file_);
  std::string fault;
  if (!f.init || !f.shutdown || !f.error_string || !f.device_by_uuid)
    fault = fmt::format("{} lacks a function that every NVML has", file);
  else if (const int code = f.init(); code != success)
    fault = fmt::format("nvmlInit: {}", words(code));
  if (fault.empty())
    return;
  (void)dlclose(file_);
  throw std::runtime_error(fault);
}

Library::~Library() {
  // Nobody is left to whom a failure could matter.
  (void)functions_.shutdown();
  (void)dlclose(file_);
}

std::string Library::words(int code) const {
  const char* const text = functions_.error_string(code);
  return text == nullptr ? fmt::format("error {}", code) : text;
}

std::string version(int (*ask)(char*, unsigned)) {
  std::array<char, version_size> text{};
  if (ask == nullptr || ask(text.data(), version_size) != success)
    return {};
  text.back() = '\0';
  return text.data();
}

std::string driver_version(const char* file) {
  return ask_once(file, &Functions::driver_version);
}

std::string library_version(const char* file) {
  return ask_once(file, &Functions::library_version);
}
}  // namespace minitaw::nvml
