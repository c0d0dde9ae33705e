#pragma once

#include <string>
#include <vector>

#include "deck/value.hpp"

namespace minitaw::deck {

/// The whole text of a deck file. Throws InputError for a folder, an unreadable, empty or oversized file.
[[nodiscard]] std::string read_text(const std::string& path);

/// Keys and values of a TOML deck, in the order of the file. Throws InputError with file and line for text
/// that is not TOML, tables, and dates. Keys are not checked here.
[[nodiscard]] std::vector<Setting> parse_toml(const std::string& text, const std::string& path);

/// "key=value" of the command line. The value is TOML if it parses as such; else, if `may_split`, a list of
/// the parts between commas; else a text without quotes. Throws InputError if "=" is missing.
[[nodiscard]] Setting parse_override(const std::string& text, bool may_split);
/// The part before "=". Throws InputError if there is none.
[[nodiscard]] std::string override_key(const std::string& text);

/// Of the library that parses TOML, "3.4.0". Its headers are kept to this part: nvcc, which compiles all that
/// uses Kokkos on devices, does not take them.
[[nodiscard]] std::string toml_version();

}  // namespace minitaw::deck
