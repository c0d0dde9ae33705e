// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What a device did, kernel by kernel: where its time went, and where it waited.
namespace minitaw::kernel_times {
/// One kernel, copy or fill on the device; times in ns of the device's clock.
struct Activity {
  std::string name;
  std::uint64_t begin, end;
};

/// All calls of one name.
struct Total {
  std::string name;
  int calls = 0;
  std::uint64_t time = 0;  ///< ns
};

/// All gaps between two names: nothing ran from the end of the first to the begin of the second.
struct Gap {
  std::string before, after;
  int count = 0;               ///< longer than the bound
  std::uint64_t longest = 0;   ///< ns
  std::uint64_t together = 0;  ///< ns
};

struct Summary {
  int activities = 0;
  std::uint64_t span = 0,
                busy =
                    0;  ///< ns: from the first begin to the last end; of it with something running
  std::vector<Total> totals;  ///< most time first
  std::vector<Gap> gaps;      ///< longer than the bound; most time first
};

/// The later half of the activities, given in any order: the first steps load code and choose
/// algorithms.
[[nodiscard]] Summary summarize(std::vector<Activity> activities, std::uint64_t bound);

/// As Markdown; times in us and ms.
[[nodiscard]] std::string report(const Summary& summary, std::uint64_t bound);
}  // namespace minitaw::kernel_times
