// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for libnvidia-ml.so.1: the symbols that miniTaw looks for, one device (GPU-1) that
// uses 1.5 J between two questions. Environment variable FAKE_NVML says what goes wrong:
//   no-driver     initialisation fails
//   no-energy     energy is not supported
//   lost          the device does not answer
//   cut           the device is cut into instances (MIG)
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
enum : int { success = 0, not_supported = 3, not_found = 6, no_driver = 9, lost = 15 };

struct Device {};

[[maybe_unused]] Device device;
int open_count = 0;
[[maybe_unused]] unsigned long long millijoules =
    5'000'000'000'000ULL;  // a driver that was loaded long ago

std::string mode() {
  const char* const text = std::getenv("FAKE_NVML");
  return text == nullptr ? "" : text;
}
}  // namespace

extern "C" {
int nvmlInit_v2() {
  if (mode() == "no-driver")
    return no_driver;
  ++open_count;
  return success;
}

int nvmlShutdown() {
  return --open_count >= 0 ? success : 1;
}

const char* nvmlErrorString(int code) {
  switch (code) {
  case not_supported: return "Not Supported";
  case not_found: return "Not Found";
  case no_driver: return "Driver Not Loaded";
  case lost: return "GPU is lost";
  default: return "Error";
  }
}

int fakeNvmlOpenCount() {
  return open_count;
}

#if !defined(FAKE_NVML_bare)
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return success;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, Device** out) {
  *out = &device;
  return uuid == std::string("GPU-1") ? success : not_found;
}

int nvmlDeviceGetMigMode(Device*, unsigned* now, unsigned* later) {
  *now = *later = mode() == "cut" ? 1 : 0;
  return mode().empty() ? not_supported : success;
}

int nvmlDeviceGetTotalEnergyConsumption(Device*, unsigned long long* out) {
  if (open_count == 0)
    return 1;
  if (mode() == "lost")
    return lost;
  if (mode() == "no-energy")
    return not_supported;
  *out = millijoules += 1500;
  return success;
}
#endif
}
