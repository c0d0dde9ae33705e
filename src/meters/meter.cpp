#include "meters/meter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <vector>

#include "topology/nvml.hpp"

namespace minitaw::meters {
namespace {

using nvml::Device;
using nvml::Library;

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr const char* is_part = "the device is part of one (MIG), and NVML tells of whole ones only";

template <class Work>
double time_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The same number names a device "GPU-..." and an instance of one "MIG-...".
bool is_instance(const Library& nvml, const std::string& uuid) {
  Device found = nullptr;
  return uuid.starts_with("GPU-") &&
         nvml.call().device_by_uuid(("MIG-" + uuid.substr(4)).c_str(), &found) == nvml::success;
}

bool is_cut(const Library& nvml, Device device) {
  unsigned now = 0, later = 0;
  // Devices that cannot be cut answer that they do not support the question.
  return nvml.call().mig_mode != nullptr && nvml.call().mig_mode(device, &now, &later) == nvml::success &&
         now == nvml::mig_enabled;
}

Device find(const Library& nvml, const std::string& uuid) {
  Device device = nullptr;
  const int code = nvml.call().device_by_uuid(uuid.c_str(), &device);
  if (code != nvml::success) {
    if (is_instance(nvml, uuid)) throw std::runtime_error(is_part);
    throw std::runtime_error(fmt::format("NVML on device {}: {}", uuid, nvml.words(code)));
  }
  if (is_cut(nvml, device)) throw std::runtime_error(is_part);
  return device;
}

/// Nothing known.
record::DeviceSample unknown_sample() { return {none, none, none, none, record::throttle_unknown}; }

class NoMeter final : public Meter {
public:
  explicit NoMeter(std::string reason) : reason_(std::move(reason)) {}
  const std::string& name() const override { return name_; }
  const std::string& fault() const override { return reason_; }
  record::DeviceSample read() override { return unknown_sample(); }
  double energy() override { return none; }

private:
  std::string name_ = "none";
  std::string reason_;
};

/// A device as NVML sees it. A quantity that the device or the library does not support is NaN; any other
/// error makes the whole meter unavailable.
class NvmlMeter final : public Meter {
public:
  /// Throws std::runtime_error, which says why, if the device cannot be read.
  NvmlMeter(const std::string& uuid, const char* file);

  const std::string& name() const override { return name_; }
  const std::string& fault() const override { return fault_; }
  record::DeviceSample read() override;
  double energy() override;

private:
  /// One quantity in its own unit times `scale`; notes what is not supported, and a failure.
  template <class Value, class Function, class... Args>
  double ask(const char* quantity, double scale, Function function, Args... args);
  [[nodiscard]] std::uint64_t ask_reasons();
  [[nodiscard]] bool answered(const char* quantity, int code);
  void lacks(const char* quantity);

  nvml::Library library_;
  nvml::Device device_;
  std::string name_;
  std::string fault_;
  std::vector<std::string> lacking_;
};

NvmlMeter::NvmlMeter(const std::string& uuid, const char* file)
    : library_(file), device_(find(library_, uuid)) {
  const std::string version = nvml::version(library_.call().library_version);
  name_ = "nvml " + (version.empty() ? "of unknown version" : version);
  (void)read();  // the first one may have to wake something
  const double seconds = time_of([&] { (void)read(); });
  (void)energy();
  if (!fault_.empty()) throw std::runtime_error(fault_);
  if (!lacking_.empty()) name_ += fmt::format(" without {}", fmt::join(lacking_, " and "));
  name_ += fmt::format(", {:.2f} ms a reading", 1e3 * seconds);
}

void NvmlMeter::lacks(const char* quantity) {
  if (std::ranges::find(lacking_, quantity) == lacking_.end()) lacking_.emplace_back(quantity);
}

bool NvmlMeter::answered(const char* quantity, int code) {
  if (code == nvml::success) return true;
  if (code == nvml::not_supported || code == nvml::function_not_found) lacks(quantity);
  else fault_ = fmt::format("NVML's {}: {}", quantity, library_.words(code));
  return false;
}

template <class Value, class Function, class... Args>
double NvmlMeter::ask(const char* quantity, double scale, Function function, Args... args) {
  if (!fault_.empty()) return none;
  Value value = 0;
  const int code = function == nullptr ? int{nvml::function_not_found} : function(device_, args..., &value);
  return answered(quantity, code) ? static_cast<double>(value) * scale : none;
}

std::uint64_t NvmlMeter::ask_reasons() {
  const auto function = library_.call().throttle_reasons;
  if (!fault_.empty()) return record::throttle_unknown;
  unsigned long long reasons = 0;
  const int code = function == nullptr ? int{nvml::function_not_found} : function(device_, &reasons);
  return answered("throttle reasons", code) ? std::uint64_t{reasons} : record::throttle_unknown;
}

record::DeviceSample NvmlMeter::read() {
  const nvml::Functions& call = library_.call();
  record::DeviceSample sample{};
  sample.clock_mhz = ask<unsigned>("clock", 1, call.clock, nvml::clock_sm);
  sample.memory_clock_mhz = ask<unsigned>("memory clock", 1, call.clock, nvml::clock_memory);
  sample.temperature_c = ask<unsigned>("temperature", 1, call.temperature, nvml::sensor_die);
  sample.power_w = ask<unsigned>("power", 1e-3, call.power);
  sample.throttle = ask_reasons();
  return sample;
}

double NvmlMeter::energy() { return ask<unsigned long long>("energy", 1e-3, library_.call().energy); }

}  // namespace

std::unique_ptr<Meter> no_meter(std::string reason) { return std::make_unique<NoMeter>(std::move(reason)); }

std::unique_ptr<Meter> make_meter(const std::string& uuid, const char* nvml_file) {
  if (uuid.empty()) return no_meter("no NVIDIA device");
  try {
    return std::make_unique<NvmlMeter>(uuid, nvml_file);
  } catch (const std::runtime_error& error) {
    return no_meter(error.what());
  }
}

}  // namespace minitaw::meters
