// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace minitaw::deck {
/// Values of a key as given: texts of numbers, words or quotes; and their place: "deck.toml:12" or
/// "--set".
struct GivenKey {
  std::vector<std::string> values;
  bool list = false;  ///< else there is one value
  std::string where;
};

using GivenKeys = std::map<std::string, GivenKey>;
std::string in_quotes(std::string_view text);
/// A whole number: "4096", "4K", "1M", "2G" (1024-based). Throws InputError unless in [least,
/// most].
std::int64_t to_size(const std::string& text, std::int64_t least, std::int64_t most);
/// A finite number above zero. Throws InputError.
double to_positive(const std::string& text);
/// The position of one of the given words. Throws InputError that names the nearest.
std::size_t to_choice(const std::string& text, const std::vector<std::string>& choices);
/// The whole text of a deck file. Throws InputError for a folder, an unreadable, empty or oversized
/// file.
std::string read_text(const std::string& path);
/// A deck in TOML. Throws InputError with file and line for text that is not TOML, tables, dates
/// and unknown keys. No header shows toml++: nvcc, which compiles all that uses Kokkos on devices,
/// does not take it.
GivenKeys parse_toml(const std::string& text, const std::string& path);
/// Lets "key=value" replace what the deck says with this key or one of the same meaning: a list
/// in brackets or, where the key takes several, with commas, else one value, quoted or not. Throws
/// InputError without key or "=".
void override_key(GivenKeys& given, const std::string& text);
}  // namespace minitaw::deck
