// SPDX-License-Identifier: BSD-3-Clause
#include "topology/nvml.hpp"
#include <array>
#include <dlfcn.h>
#include <fmt/format.h>
#include <stdexcept>

namespace minitaw::nvml {
namespace {
constexpr int success = 0;           // nvmlReturn_t, which all functions return
constexpr unsigned mig_enabled = 1;  // nvmlEnableState_t: the device is cut into instances
}  // namespace

template <class Function>
Function* Library::find(const char* name) const {
  return reinterpret_cast<Function*>(dlsym(file_.get(), name));
}

Library::Library(const char* file) : file_(dlopen(file, RTLD_NOW | RTLD_LOCAL), dlclose) {
  if (file_ == nullptr)
    throw std::runtime_error(fmt::format("no {} (it comes with NVIDIA's driver)", file));
  for (const char* name :
      {"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetHandleByUUID"})
    if (find<void()>(name) == nullptr)
      throw std::runtime_error(fmt::format("{} lacks a function that every NVML has", file));
  require_success(find<int()>("nvmlInit_v2")(), "nvmlInit");
}

Library::~Library() {
  // Nobody is left to whom a failure could matter.
  (void)find<int()>("nvmlShutdown")();
}

void Library::require_success(int code, const char* what) const {
  if (code == success)
    return;
  const char* const words = find<const char*(int)>("nvmlErrorString")(code);
  throw std::runtime_error(
      fmt::format("{}: {}", what, words == nullptr ? fmt::format("error {}", code) : words));
}

Device Library::whole_device(const std::string& uuid) const {
  Device device = nullptr;
  const auto by_uuid = find<int(const char*, Device*)>("nvmlDeviceGetHandleByUUID");
  require_success(by_uuid(uuid.c_str(), &device), "NVML's device");
  unsigned now = 0, after_reset = 0;
  const auto mig_mode = find<int(Device, unsigned*, unsigned*)>("nvmlDeviceGetMigMode");
  // Devices that cannot be cut answer that they do not support the question.
  if (mig_mode != nullptr && mig_mode(device, &now, &after_reset) == success && now == mig_enabled)
    throw std::runtime_error("the device is part of one (MIG), and NVML tells of whole ones only");
  return device;
}

double Library::energy(Device device) const {
  unsigned long long millijoules = 0;
  const auto ask = find<int(Device, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
  if (ask == nullptr)
    throw std::runtime_error("this NVML counts no energy");
  require_success(ask(device, &millijoules), "NVML's energy");
  return millijoules;
}

std::string Library::driver_version() const {
  std::array<char, 80> text{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  const auto ask = find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  if (ask == nullptr || ask(text.data(), text.size()) != success)
    return {};
  text.back() = '\0';
  return text.data();
}

std::string driver_version(const char* file) {
  try {
    return Library(file).driver_version();
  } catch (const std::runtime_error&) {
    return {};
  }
}
}  // namespace minitaw::nvml
