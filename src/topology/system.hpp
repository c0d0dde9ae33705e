// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

/// What the system and the launcher say of a rank.
namespace minitaw::topology {
/// "0-3,8" of ascending numbers; "none" of no numbers.
[[nodiscard]] std::string ranges_text(std::span<const int> numbers);
/// The numbers of such a text; none where it is something else.
[[nodiscard]] std::vector<int> numbers_of(const std::string& ranges);

/// The first line of a file; empty if it cannot be read.
[[nodiscard]] std::string line_of(const std::filesystem::path& file);
/// Throws InputError if MPI knows one rank where the launcher has started several: they speak
/// different PMIs.
void require_launched_together(int ranks);
}  // namespace minitaw::topology
