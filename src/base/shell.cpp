// SPDX-License-Identifier: BSD-3-Clause
#include "base/shell.hpp"
#include <regex>

namespace minitaw {
std::string shell_line(const std::vector<std::string>& words) {
  constexpr const char* plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+:,./@%";
  std::string line;
  for (const std::string& word : words) {
    const bool is_plain = !word.empty() && word.find_first_not_of(plain) == std::string::npos;
    line += line.empty() ? "" : " ";
    line += is_plain ? word : "'" + std::regex_replace(word, std::regex("'"), "'\\''") + "'";
  }
  return line;
}
}  // namespace minitaw
