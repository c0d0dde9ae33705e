// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/rates/rates.hpp"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <unistd.h>
#include "topology/system.hpp"

namespace minitaw::rates {
namespace {
namespace fs = std::filesystem;
using topology::line_of;

/// Seconds of each core: "cpu1 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...", in ticks.
std::map<int, double> busy_cores(const fs::path& stat) {
  std::map<int, double> busy;
  std::ifstream file(stat);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    if (words >> name >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal)
      if (name.starts_with("cpu") && name.size() > 3)
        busy[std::atoi(name.c_str() + 3)] = (user + nice + system + steal) / sysconf(_SC_CLK_TCK);
  }
  return busy;
}

/// Values of one register of this width in bits, by the processor's flags.
int lanes_of(const std::string& flags) {
  const auto has = [&](const char* flag) {
    return flags.find(fmt::format(" {} ", flag)) != std::string::npos;
  };
  return has("avx512f") ? 16 : has("avx2") && has("fma") ? 8 : 0;
}
}  // namespace

CoreUse core_use(std::span<const int> cores, const fs::path& stat) {
  const std::map<int, double> all = busy_cores(stat);
  double busy = cores.empty() ? std::nan("") : 0;
  for (const int core : cores)
    busy += all.contains(core) ? all.at(core) : std::nan("");
  const auto seconds = [](clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
  };
  return {seconds(CLOCK_MONOTONIC), busy, seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

double share_of_others(
    std::span<const topology::RankPlace> ranks, std::span<const CoreUse> uses, int rank) {
  const topology::RankPlace& place = ranks[rank];
  double others = uses[rank].busy;
  for (std::size_t other = 0; other < ranks.size(); ++other)
    if (share_cores(place, ranks[other]))
      others -= uses[other].own;
  return others / (place.cores.size() * uses[rank].elapsed);
}

std::optional<HardwareRate> core_peak(const fs::path& cpuinfo, const fs::path& cpus) {
  std::ifstream file(cpuinfo);
  int lanes = 0;
  double hertz = 1e3 * std::atof(line_of(cpus / "cpu0/cpufreq/cpuinfo_max_freq").c_str());
  const bool is_highest = hertz > 0;
  for (std::string line; std::getline(file, line);) {
    const std::string value = line.substr(std::min(line.size(), line.find(':') + 1)) + " ";
    if (line.starts_with("flags"))
      lanes = lanes_of(value);
    if (line.starts_with("cpu MHz") && !is_highest)
      hertz = std::max(hertz, 1e6 * std::atof(value.c_str()));
  }
  if (lanes == 0 || hertz <= 0)
    return {};
  return HardwareRate{
      hertz * lanes * 2 * 2, fmt::format("{:.2f} GHz, {} bits", 1e-9 * hertz, 32 * lanes)};
}

std::optional<HardwareRate> link_rate(const std::string& ports, const fs::path& classes) {
  constexpr double gbit = 1e9 / 8;
  const std::string port = ports.substr(0, ports.find(',')), name = port.substr(0, port.find(':'));
  if (!port.empty()) {
    const fs::path fabric =
        classes / "infiniband" / name / "ports" / port.substr(name.size() + 1) / "rate";
    if (const double rate = std::atof(line_of(fabric).c_str()); rate > 0)
      return HardwareRate{rate * gbit, "port"};
    if (const double mbit = std::atof(line_of(classes / "net" / name / "speed").c_str()); mbit > 0)
      return HardwareRate{1e-3 * mbit * gbit, "port"};
    return {};
  }
  std::set<double> speeds;
  std::error_code missing;
  for (const auto& adapter : fs::directory_iterator(classes / "net", missing))
    if (fs::exists(adapter.path() / "device", missing) &&
        line_of(adapter.path() / "operstate") == "up")
      speeds.insert(std::atof(line_of(adapter.path() / "speed").c_str()));
  if (speeds.size() != 1 || *speeds.begin() <= 0)
    return {};
  return HardwareRate{1e-3 * *speeds.begin() * gbit, "network adapter"};
}
}  // namespace minitaw::rates
