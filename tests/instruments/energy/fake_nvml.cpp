// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for libnvidia-ml.so.1: the symbols that miniTaw looks for, one device (GPU-1) that
// uses 1.5 J between two questions. FAKE_NVML says what goes wrong: the driver, the energy, the
// device (lost), or that it is cut into instances (MIG).
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace {
enum Code { success, not_supported = 3, not_found = 6, no_driver = 9, lost = 15 };

int open_count = 0;
unsigned long long millijoules = 5'000'000'000'000ULL;  // a driver that was loaded long ago

Code now(Code usual = success) {
  static const std::map<std::string, Code> codes = {
      {"no-driver", no_driver}, {"no-energy", not_supported}, {"lost", lost}};
  const auto found = codes.find(std::getenv("FAKE_NVML"));
  return found == codes.end() ? usual : found->second;
}
}  // namespace

extern "C" {
int nvmlInit_v2() {
  if (now() == no_driver)
    return no_driver;
  ++open_count;
  return success;
}

int nvmlShutdown() {
  return --open_count >= 0 ? success : 1;
}

int fakeNvmlOpenCount() {
  return open_count;
}

const char* nvmlErrorString(int code) {
  static const std::map<int, const char*> words = {{not_supported, "Not Supported"},
      {not_found, "Not Found"},
      {no_driver, "Driver Not Loaded"},
      {lost, "GPU is lost"}};
  return words.at(code);
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return success;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  *out = &millijoules;
  return uuid == std::string("GPU-1") ? success : not_found;
}

int nvmlDeviceGetMigMode(void* /*device*/, unsigned* mode, unsigned* later) {
  *mode = *later = std::getenv("FAKE_NVML") == std::string("cut") ? 1 : 0;
  return *mode == 1 ? success : not_supported;
}

int nvmlDeviceGetTotalEnergyConsumption(void* /*device*/, unsigned long long* out) {
  *out = millijoules += 1500;
  return open_count == 0 ? 1 : now();
}
}
