// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/rates/rates.hpp"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace minitaw::rates {
CoreUse core_use(std::span<const int> cores, const std::filesystem::path& stat) {
  double busy = 0;
  std::size_t found = 0;
  std::ifstream file(stat);
  // "cpu1 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...", in ticks.
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    words >> name >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal;
    const bool is_core = words && name.starts_with("cpu") && name.size() > 3;
    if (is_core && std::ranges::count(cores, std::atoi(name.c_str() + 3)) > 0) {
      busy += (user + nice + system + steal) / sysconf(_SC_CLK_TCK);
      ++found;
    }
  }
  if (found == 0 || found < cores.size())
    busy = std::nan("");
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
