#include "meters/meter.hpp"

#include <limits>
#include <stdexcept>

#include "meters/nvml_meter.hpp"

namespace minitaw::meters {

namespace {

class NoMeter final : public Meter {
public:
  explicit NoMeter(std::string reason) : reason_(std::move(reason)) {}
  const std::string& name() const override { return name_; }
  const std::string& fault() const override { return reason_; }
  record::DeviceSample read() override { return unknown_sample(); }
  double energy() override { return std::numeric_limits<double>::quiet_NaN(); }

private:
  std::string name_ = "none";
  std::string reason_;
};

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
