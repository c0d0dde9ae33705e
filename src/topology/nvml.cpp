// SPDX-License-Identifier: BSD-3-Clause
#include "topology/nvml.hpp"
#include <array>
#include <dlfcn.h>
#include <fmt/format.h>
#include <stdexcept>

namespace minitaw::nvml {
namespace {
constexpr int success = 0;
constexpr unsigned mig_enabled = 1;  // nvmlEnableState_t: the device is cut into instances

template <class Function>
void find(void* file, Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(file, name));
}

Functions functions_of(void* file) {
  Functions f{};
  find(file, f.init, "nvmlInit_v2");
  find(file, f.shutdown, "nvmlShutdown");
  find(file, f.error_string, "nvmlErrorString");
  find(file, f.driver_version, "nvmlSystemGetDriverVersion");
  find(file, f.device_by_uuid, "nvmlDeviceGetHandleByUUID");
  find(file, f.mig_mode, "nvmlDeviceGetMigMode");
  find(file, f.energy, "nvmlDeviceGetTotalEnergyConsumption");
  return f;
}
}  // namespace

Library::Library(const char* file) : file_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
  if (file_ == nullptr)
    throw std::runtime_error(fmt::format("no {} (it comes with NVIDIA's driver)", file));
  functions_ = functions_of(file_);
  const Functions& f = functions_;
  try {
    if (!f.init || !f.shutdown || !f.error_string || !f.device_by_uuid)
      throw std::runtime_error(fmt::format("{} lacks a function that every NVML has", file));
    require_success(f.init(), "nvmlInit");
  } catch (const std::runtime_error&) {
    (void)dlclose(file_);
    throw;
  }
}

Library::~Library() {
  // Nobody is left to whom a failure could matter.
  (void)functions_.shutdown();
  (void)dlclose(file_);
}

void Library::require_success(int code, const char* what) const {
  if (code == success)
    return;
  const char* const words = functions_.error_string(code);
  throw std::runtime_error(
      fmt::format("{}: {}", what, words == nullptr ? fmt::format("error {}", code) : words));
}

Device Library::whole_device(const std::string& uuid) const {
  Device device = nullptr;
  require_success(functions_.device_by_uuid(uuid.c_str(), &device), "NVML's device");
  unsigned now = 0, later = 0;
  // Devices that cannot be cut answer that they do not support the question.
  if (functions_.mig_mode != nullptr && functions_.mig_mode(device, &now, &later) == success &&
      now == mig_enabled)
    throw std::runtime_error("the device is part of one (MIG), and NVML tells of whole ones only");
  return device;
}

double Library::energy(Device device) const {
  unsigned long long millijoules = 0;
  if (functions_.energy == nullptr)
    throw std::runtime_error("this NVML counts no energy");
  require_success(functions_.energy(device, &millijoules), "NVML's energy");
  return millijoules;
}

std::string Library::driver_version() const {
  std::array<char, 80> text{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  const auto ask = functions_.driver_version;
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
