// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <istream>
#include <span>
#include <string>

/// Operating system and launcher of a rank; "unknown" where Linux's own files do not say.
namespace minitaw::topology {
/// "0-3,8" of ascending numbers; "none" of no numbers.
[[nodiscard]] std::string ranges_text(std::span<const int> numbers);
/// "Linux 6.12.43+deb13-amd64 x86_64, Debian GNU/Linux 13 (trixie)". Without the host's name.
[[nodiscard]] std::string os_text();
/// From /etc/os-release; tests have others.
[[nodiscard]] std::string distribution(std::istream& os_release);
/// Throws InputError if MPI knows one rank where the launcher has started several: they speak different PMIs.
void require_launched_together(int ranks);
}  // namespace minitaw::topology
