// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/energy/meter.hpp"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <memory>
#include <stdexcept>

namespace minitaw::energy {
namespace {
Counter counter_of_node(const std::string& file) {
  if (std::getenv("MINITAW_SHAPED_LINKS") != nullptr)
    throw std::runtime_error("the nodes are parts of one machine");
  return [file] {
    errno = 0;
    std::ifstream stream(file);
    if (double joules = 0; stream >> joules)
      return joules;
    throw std::runtime_error(
        fmt::format("{}: {}", file, errno == 0 ? "not a number" : std::strerror(errno)));
  };
}

Counter counter_of_device(const std::string& file, const std::string& device) {
  if (device.empty())
    throw std::runtime_error("no NVIDIA device that the rank uses alone");
  const auto nvml = std::make_shared<nvml::Library>(file.c_str());
  const nvml::Device found = nvml->whole_device(device);
  return [nvml, found] { return 1e-3 * nvml->energy(found); };
}
}  // namespace

Meter::Meter(const std::string& device, const Places& places) {
  std::string why;
  for (const bool of_node : {true, false})  // what covers most comes first
    try {
      counter_ = of_node ? counter_of_node(places.cray) : counter_of_device(places.nvml, device);
      begin_ = counter_();
      of_node_ = of_node;
      source_ = of_node ? "the node (pm_counters)" : "the device (NVML)";
      return;
    } catch (const std::runtime_error& error) {
      why += (why.empty() ? "" : "; ") + std::string(error.what());
    }
  counter_ = nullptr;
  source_ = "unavailable: " + why;
}

double Meter::joules() {
  try {
    if (counter_)
      return counter_() - begin_;
  } catch (const std::runtime_error& error) {
    counter_ = nullptr;
    source_ = fmt::format("unavailable: {}", error.what());
  }
  return std::numeric_limits<double>::quiet_NaN();
}
}  // namespace minitaw::energy
