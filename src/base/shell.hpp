// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

namespace minitaw {
/// A command in one line, quoted so that it can be pasted into a shell.
std::string shell_line(const std::vector<std::string>& words);
}  // namespace minitaw
