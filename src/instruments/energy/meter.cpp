// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/energy/meter.hpp"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <stdexcept>
#include "topology/system.hpp"

namespace minitaw::energy {
namespace {
namespace fs = std::filesystem;
using Counters = std::vector<Counter>;

/// The number at the beginning of a file.
double number_in(const fs::path& file) {
  errno = 0;
  std::ifstream stream(file);
  if (double value = 0; stream >> value)
    return value;
  throw std::runtime_error(
      fmt::format("{}: {}", file.string(), errno == 0 ? "not a number" : std::strerror(errno)));
}

/// `unit`: J of what the file counts.
Counter counter_in(const fs::path& file, double unit = 1) {
  return {.read = [=] { return unit * number_in(file); }};
}

Counters counter_of_device(const std::string& file, const std::string& device) {
  if (device.empty())
    throw std::runtime_error("no NVIDIA device that the rank uses alone");
  const auto nvml = std::make_shared<nvml::Library>(file.c_str());
  const nvml::Device found = nvml->whole_device(device);
  return {{.read = [nvml, found] { return 1e-3 * nvml->energy(found); }}};
}

/// The processors; their parts (intel-rapl:0:1), psys and what repeats them (intel-rapl-mmio:0)
/// would count twice.
Counters counters_of_processors(const std::string& folder) {
  Counters counters;
  std::error_code missing;
  for (const auto& zone : fs::directory_iterator(folder, missing)) {
    if (!zone.path().filename().string().starts_with("intel-rapl:") ||
        !topology::line_of(zone.path() / "name").starts_with("package"))
      continue;
    constexpr double microjoule = 1e-6;
    counters.push_back(counter_in(zone.path() / "energy_uj", microjoule));
    counters.back().range = microjoule * number_in(zone.path() / "max_energy_range_uj");
  }
  if (counters.empty())
    throw std::runtime_error(folder + ": no counter of a processor");
  return counters;
}

struct Source {
  const char* name;
  bool of_node;
  std::function<Counters()> open;
};
}  // namespace

Meter::Meter(const std::string& device, const CounterFiles& files) {
  // What covers most comes first.
  const Source sources[] = {
      {"the node (pm_counters)", true, [&] { return Counters{counter_in(files.cray)}; }},
      {"the device (NVML)", false, [&] { return counter_of_device(files.nvml, device); }},
      {"the processors (RAPL)", true, [&] { return counters_of_processors(files.rapl); }},
  };
  std::string why;
  for (const Source& source : sources)
    try {
      if (source.of_node && std::getenv("MINITAW_SHAPED_LINKS") != nullptr)
        throw std::runtime_error("the nodes are parts of one machine");
      Counters counters = source.open();
      for (Counter& counter : counters)
        counter.last = counter.read();
      counters_ = std::move(counters);
      used_ = 0;
      of_node_ = source.of_node;
      source_ = source.name;
      return;
    } catch (const std::runtime_error& error) {
      why += (why.empty() ? "" : "; ") + std::string(error.what());
    }
  source_ = "unavailable: " + why;
}

double Meter::joules() {
  try {
    for (Counter& counter : counters_) {
      const double now = counter.read();
      used_ += now - counter.last + (now < counter.last ? counter.range : 0);
      counter.last = now;
    }
  } catch (const std::runtime_error& error) {
    counters_.clear();
    used_ = std::numeric_limits<double>::quiet_NaN();
    source_ = fmt::format("unavailable: {}", error.what());
  }
  return used_;
}
}  // namespace minitaw::energy
