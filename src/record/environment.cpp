// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/ranges.h>
#include <regex>
#include <sstream>
#include <unistd.h>
#include "record/provenance.hpp"

// Which variables a record keeps: those of environment.txt.

namespace minitaw::record {
extern const std::string_view environment_text;

namespace {
/// All lines of one kind, as one regular expression.
std::string forms_of(const std::string& kind) {
  std::vector<std::string> forms;
  std::istringstream lines{std::string(environment_text)};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kind + " "))
      forms.push_back(line.substr(kind.size() + 1));
  return fmt::format("{}", fmt::join(forms, "|"));
}

constexpr const char* between = ",;:=+^~@()|{}*& ";
constexpr std::size_t longest = 400;

bool has_kept_form(const std::string& value) {
  static const std::regex part_form(forms_of("value"), std::regex::icase);
  if (value.size() > longest)
    return false;
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t begin = value.find_first_not_of(between, at);
    if (begin == std::string::npos)
      return true;
    at = std::min(value.find_first_of(between, begin), value.size());
    if (!std::regex_match(value.substr(begin, at - begin), part_form))
      return false;
  }
  return true;
}
}  // namespace

std::optional<std::string> recorded(
    const std::string& name, const std::string& value, const HostNames& hosts) {
  static const std::regex variables(forms_of("variable"));
  static const std::regex of_libraries(
      fmt::format("({})_[A-Za-z0-9_]{{1,60}}", forms_of("library")));
  const bool is_kept = std::regex_match(name, variables);
  if (!is_kept && !std::regex_match(name, of_libraries))
    return std::nullopt;
  const bool is_plain =
      is_kept && has_kept_form(value) && (hosts.shown() || hosts.hidden(value) == value);
  return name + "=" + (is_plain ? value : "(not kept)");
}

std::vector<std::string> recorded_environment(const HostNames& hosts) {
  std::vector<std::string> found;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string variable = *at;
    const std::size_t equals = variable.find('=');
    if (equals == std::string::npos)
      continue;
    if (auto kept = recorded(variable.substr(0, equals), variable.substr(equals + 1), hosts))
      found.push_back(std::move(*kept));
  }
  std::ranges::sort(found);
  return found;
}
}  // namespace minitaw::record
