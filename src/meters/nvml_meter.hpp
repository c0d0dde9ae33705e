#pragma once

#include <vector>

#include "meters/meter.hpp"

namespace minitaw::meters {

/// Nothing known.
[[nodiscard]] record::DeviceSample unknown_sample();

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

}  // namespace minitaw::meters
