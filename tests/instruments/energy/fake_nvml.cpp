// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for libnvidia-ml.so.1: the symbols that miniTaw looks for, one device (GPU-1) that
// uses 1.5 J between two questions. FAKE_NVML names a function that fails, or says "MIG": the
// device is cut into instances.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
int open_count = 0;
unsigned long long millijoules = 5'000'000'000'000ULL;  // a driver that was loaded long ago

bool is_set(const std::string& word) {
  return word == std::getenv("FAKE_NVML");
}
}  // namespace

extern "C" {
int nvmlInit_v2() {
  if (is_set("nvmlInit"))
    return 9;
  ++open_count;
  return 0;
}

int nvmlShutdown() {
  return --open_count >= 0 ? 0 : 1;
}

int fakeNvmlOpenCount() {
  return open_count;
}

const char* nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : code == 6 ? "Not Found" : "GPU is lost";
}

int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  std::strncpy(text, "580.65.06", size);
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** out) {
  *out = &millijoules;
  return uuid == std::string("GPU-1") ? 0 : 6;
}

int nvmlDeviceGetMigMode(void* /*device*/, unsigned* mode, unsigned* later) {
  *mode = *later = is_set("MIG") ? 1 : 0;
  return *mode == 1 ? 0 : 3;
}

int nvmlDeviceGetTotalEnergyConsumption(void* /*device*/, unsigned long long* out) {
  *out = millijoules += 1500;
  return open_count == 0 || is_set("energy") ? 15 : 0;
}
}
