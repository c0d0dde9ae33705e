// SPDX-License-Identifier: BSD-3-Clause
// A stand-in for libnvidia-ml.so.1: the symbols that miniTaw looks for, one device (GPU-1), values
// that move on with each call. Environment variable FAKE_NVML says what goes wrong:
//   no-driver     initialisation fails
//   no-QUANTITY   clock, memory-clock, temperature, power, reasons or energy is not supported
//   lost          the device does not answer; lost-after-N: after N readings of its power
//   cut           the device is cut into instances (MIG)
//   standing      the energy counter stands still
#include <cstdlib>
#include <cstring>
#include <string>

namespace {
enum : int { success = 0, not_supported = 3, not_found = 6, no_driver = 9, lost = 15 };

struct Device {};

[[maybe_unused]] Device device;
int open_count = 0, reads = 0;
[[maybe_unused]] unsigned long long millijoules =
    5'000'000'000'000ULL;  // a driver that was loaded long ago

std::string mode() {
  const char* const text = std::getenv("FAKE_NVML");
  return text == nullptr ? "" : text;
}

bool is_lost() {
  if (mode().rfind("lost-after-", 0) == 0)
    return reads > std::atoi(mode().c_str() + 11);
  return mode() == "lost";
}

template <class Value>
int answer(const char* quantity, Value value, Value* out) {
  if (open_count == 0)
    return 1;
  if (is_lost())
    return lost;
  if (mode() == std::string("no-") + quantity)
    return not_supported;
  *out = value;
  return success;
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
  if (code == not_found)
    return "Not Found";
  return code == lost ? "GPU is lost" : code == no_driver ? "Driver Not Loaded" : "Error";
}

int fakeNvmlOpenCount() {
  return open_count;
}

#if !defined(FAKE_NVML_bare)
int nvmlSystemGetNVMLVersion(char* text, unsigned size) {
  std::strncpy(text, "12.580.65", size);
  return success;
}

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

int nvmlDeviceGetClockInfo(Device*, int clock, unsigned* out) {
  if (clock == 2)
    return answer("memory-clock", 2619U + static_cast<unsigned>(reads), out);
  return clock == 1 ? answer("clock", 1980U - static_cast<unsigned>(reads), out) : 2;
}

int nvmlDeviceGetTemperature(Device*, int sensor, unsigned* out) {
  return sensor == 0 ? answer("temperature", 40U + static_cast<unsigned>(reads), out) : 2;
}

int nvmlDeviceGetPowerUsage(Device*, unsigned* out) {
  ++reads;  // once for each sample
  return answer("power", 500'250U + 1000U * static_cast<unsigned>(reads), out);
}
#if defined(FAKE_NVML_new)
int nvmlDeviceGetCurrentClocksEventReasons(Device*, unsigned long long* out) {
  return answer("reasons", reads % 2 == 0 ? 0x44ULL : 0x1ULL, out);
}

int nvmlDeviceGetTotalEnergyConsumption(Device*, unsigned long long* out) {
  if (mode() != "standing")
    millijoules += 1500;
  return answer("energy", millijoules, out);
}
#else
int nvmlDeviceGetCurrentClocksThrottleReasons(Device*, unsigned long long* out) {
  return answer("reasons", 0x8ULL, out);
}
#endif
#endif
}
