// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/energy/meter.hpp"
#include <algorithm>
#include <chrono>
#include <fmt/ranges.h>
#include <stdexcept>
#include <vector>

namespace minitaw::energy {
namespace {
using nvml::Device, nvml::Library;

bool is_cut(const Library& nvml, Device device) {
  unsigned now = 0, later = 0;
  // Devices that cannot be cut answer that they do not support the question.
  return nvml.call().mig_mode != nullptr &&
         nvml.call().mig_mode(device, &now, &later) == nvml::success && now == nvml::mig_enabled;
}

/// A part of a device (MIG) is not found by its number.
Device find(const Library& nvml, const std::string& uuid) {
  Device device = nullptr;
  if (const int code = nvml.call().device_by_uuid(uuid.c_str(), &device); code != nvml::success)
    throw std::runtime_error(fmt::format("NVML on device {}: {}", uuid, nvml.words(code)));
  if (is_cut(nvml, device))
    throw std::runtime_error("the device is part of one (MIG), and NVML tells of whole ones only");
  return device;
}

/// A device as NVML sees it: NaN for what is not supported; other errors make the meter
/// unavailable.
class NvmlMeter final : public Meter {
public:
  /// Throws std::runtime_error, which says why, if the device cannot be read.
  NvmlMeter(const std::string& uuid, const char* file)
      : library_(file),
        device_(find(library_, uuid)) {
    const std::string version = nvml::version(library_.call().library_version);
    (void)read();  // the first one may have to wake something
    const std::string time = timed_reading();
    (void)energy();
    if (!fault_.empty())
      throw std::runtime_error(fault_);
    name_ = fmt::format("nvml {}{}{}, {}",
        version.empty() ? "of unknown version" : version,
        lacking_.empty() ? "" : " without ",
        fmt::join(lacking_, " and "),
        time);
  }

  DeviceSample read() override {
    const nvml::Functions& call = library_.call();
    DeviceSample sample{};
    sample.clock_mhz = ask<unsigned>("clock", 1, call.clock, nvml::clock_sm);
    sample.memory_clock_mhz = ask<unsigned>("memory clock", 1, call.clock, nvml::clock_memory);
    sample.temperature_c = ask<unsigned>("temperature", 1, call.temperature, nvml::sensor_die);
    sample.power_w = ask<unsigned>("power", 1e-3, call.power);
    unsigned long long reasons = 0;
    const bool told = answered("throttle reasons", call.throttle_reasons, &reasons);
    sample.throttle = told ? std::uint64_t{reasons} : throttle_unknown;
    return sample;
  }

  double energy() override {
    return ask<unsigned long long>("energy", 1e-3, library_.call().energy);
  }

private:
  /// One quantity in its own unit times `scale`.
  template <class Value, class Function, class... Args>
  double ask(const char* quantity, double scale, Function function, Args... args) {
    Value value = 0;
    return answered(quantity, function, args..., &value) ? static_cast<double>(value) * scale
                                                         : none;
  }

  /// Calls a function, unless there has been a fault; notes what is not supported, and a failure.
  template <class Function, class... Args>
  bool answered(const char* quantity, Function function, Args... args) {
    if (!fault_.empty())
      return false;
    const int code =
        function == nullptr ? int{nvml::function_not_found} : function(device_, args...);
    if (code == nvml::success)
      return true;
    if (code != nvml::not_supported && code != nvml::function_not_found)
      fault_ = fmt::format("NVML's {}: {}", quantity, library_.words(code));
    else if (std::ranges::find(lacking_, quantity) == lacking_.end())
      lacking_.emplace_back(quantity);
    return false;
  }

  Library library_;
  Device device_;
  std::vector<std::string> lacking_;
};
}  // namespace

std::string Meter::timed_reading() {
  const auto begin = std::chrono::steady_clock::now();
  (void)read();
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  return fmt::format("{:.2f} ms a reading", passed.count());
}

std::unique_ptr<Meter> make_meter(const std::string& uuid, const char* nvml_file) {
  if (uuid.empty())
    return std::make_unique<Meter>("no NVIDIA device");
  try {
    return std::make_unique<NvmlMeter>(uuid, nvml_file);
  } catch (const std::runtime_error& error) {
    return std::make_unique<Meter>(error.what());
  }
}
}  // namespace minitaw::energy
