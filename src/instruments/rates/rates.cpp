// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/rates/rates.hpp"
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>
#include <unistd.h>

namespace minitaw::rates {
namespace {
namespace fs = std::filesystem;

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
}  // namespace minitaw::rates
