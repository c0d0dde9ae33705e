#include <algorithm>

#include "record/archive.hpp"

namespace minitaw::record {

namespace {

/// Folders of USTAR names take at most 155 bytes, the rest at most 100.
constexpr std::size_t longest_name = 200;
constexpr std::size_t longest_part = 100;

bool is_safe_part(std::string_view part) {
  return !part.empty() && part.size() <= longest_part && part != "." && part != "..";
}

}  // namespace

bool is_safe_name(std::string_view name) {
  const auto plain = [](char c) { return c >= ' ' && c <= '~' && c != '\\'; };
  if (name.empty() || name.size() > longest_name || !std::ranges::all_of(name, plain)) return false;
  for (std::size_t slash = name.find('/'); slash != std::string_view::npos; slash = name.find('/')) {
    if (!is_safe_part(name.substr(0, slash))) return false;
    name.remove_prefix(slash + 1);
  }
  return is_safe_part(name);
}

}  // namespace minitaw::record
