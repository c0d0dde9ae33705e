// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

/// Facts about a rank that the system and the launcher tell, and texts of them.
namespace minitaw::topology {
/// "0-3,8" of ascending numbers; "none" of no numbers.
std::string ranges_text(std::span<const int> numbers);
/// Returns the text after `key` in the first line of a file that begins with it.
std::optional<std::string> entry_of(const std::filesystem::path& file, std::string_view key);
/// The first line of a file; empty if it cannot be read.
std::string line_of(const std::filesystem::path& file);
/// Throws InputError if MPI knows one rank where the launcher has started several: they speak
/// different PMIs.
void require_launched_together(int ranks);
}  // namespace minitaw::topology
