// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/ranges.h>
#include "schedule/parse.hpp"
#include "schedule/registry.hpp"

/// Texts of programs small enough to follow by hand, and changes to them.
namespace minitaw::schedule {
/// The program's text with single blanks.
inline std::string text_of(const Request& request) {
  std::string text = to_text(build(request));
  const auto both = [](char a, char b) { return a == ' ' && b == ' '; };
  text.erase(std::ranges::unique(text, both).begin(), text.end());
  return text;
}

/// Two ranks that are far apart: weights and gradients go by send and recv.
inline Request relay() {
  return {parse_spec("tawpipe"), Groups({1, 1}), 2, 2};
}

/// Two stages that pass activations, the backward pass split in two.
inline Request pipeline() {
  return {parse_spec("zb1"), Groups({2}), 1, 2};
}

inline std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find(by, begin)) != std::string::npos;
      begin = end + by.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

/// `text` with `from`, which occurs in it, replaced everywhere.
inline std::string with(const std::string& text, const std::string& from, const std::string& to) {
  const std::vector<std::string> parts = split(text, from);
  if (parts.size() == 1)
    throw std::logic_error("does not occur: " + from);
  return fmt::format("{}", fmt::join(parts, to));
}
}  // namespace minitaw::schedule
