// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
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

/// The first line of a file; empty if it cannot be read.
[[nodiscard]] std::string line_of(const std::filesystem::path& file);
/// "Linux 6.12.43+deb13-amd64 x86_64, Debian GNU/Linux 13 (trixie)". Without the host's name.
[[nodiscard]] std::string os_text();
/// From /etc/os-release; tests have others.
[[nodiscard]] std::string distribution(std::istream& os_release);
/// Throws InputError if MPI knows one rank where the launcher has started several: they speak
/// different PMIs.
void require_launched_together(int ranks);
}  // namespace minitaw::topology
