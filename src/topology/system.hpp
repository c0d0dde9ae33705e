// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <istream>
#include <span>
#include <string>
#include <vector>

/// Operating system and launcher of a rank; "unknown" where Linux's own files do not say.
namespace minitaw::topology {
/// "0-3,8" of ascending numbers; "none" of no numbers.
[[nodiscard]] std::string ranges_text(std::span<const int> numbers);
/// The numbers of such a text; none where it is something else.
[[nodiscard]] std::vector<int> numbers_of(const std::string& ranges);

/// Where a rank computes.
struct RankCores {
  int machine = 0;           ///< cores of one number are the same for ranks of one machine
  std::vector<int> cores{};  ///< that it may run on; none: not known
  int threads = 1;           ///< that it computes with
};

/// Returns which ranks compute with more threads than they have cores, all those together that
/// share some: "4 threads of ranks 0 to 3 share 2 cores". Empty: every thread can have a core.
[[nodiscard]] std::string crowd(std::span<const RankCores> ranks);
/// "Linux 6.12.43+deb13-amd64 x86_64, Debian GNU/Linux 13 (trixie)". Without the host's name.
[[nodiscard]] std::string os_text();
/// From /etc/os-release; tests have others.
[[nodiscard]] std::string distribution(std::istream& os_release);
/// Throws InputError if MPI knows one rank where the launcher has started several: they speak
/// different PMIs.
void require_launched_together(int ranks);
}  // namespace minitaw::topology
