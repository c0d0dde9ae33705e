#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace minitaw::deck {

/// A value as the user wrote it, free of the file format.
struct Value {
  using List = std::vector<Value>;
  std::variant<std::int64_t, double, bool, std::string, List> data;
};

/// A value and where it was written: "deck.toml:12" or "--set".
struct Setting {
  Value value;
  std::string where;
};
/// What the user gave for each key.
using Settings = std::map<std::string, Setting>;

/// Text for a message: at most `most` characters of UTF-8, no control characters, so that a message stays one
/// line.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = 60);
/// The value for a message: `4096`, `"4K"`, `a list`.
[[nodiscard]] std::string describe(const Value& value);

/// A whole number, as an integer or as text with a suffix: 4096, "4096", "4K", "1M", "2G" (1024-based).
/// Throws InputError "key: ..." unless it lies in [least, most].
[[nodiscard]] std::int64_t to_size(const std::string& key, const Value& value, std::int64_t least,
                                   std::int64_t most);
/// A finite number above zero. Throws InputError.
[[nodiscard]] double to_positive(const std::string& key, const Value& value);
/// Text that is not empty. Throws InputError.
[[nodiscard]] std::string to_text(const std::string& key, const Value& value);
/// The position of one of the given words. Throws InputError that names the nearest.
[[nodiscard]] std::size_t to_choice(const std::string& key, const Value& value,
                                    const std::vector<std::string>& choices);

/// The whole text of a deck file. Throws InputError for a folder, an unreadable, empty or oversized file.
[[nodiscard]] std::string read_text(const std::string& path);

/// A deck in TOML. Throws InputError with file and line for text that is not TOML, tables, dates and unknown
/// keys.
[[nodiscard]] Settings parse_toml(const std::string& text, const std::string& path);

/// Key and value of "key=value" of the command line. Throws InputError if there is no key or no "=".
[[nodiscard]] std::pair<std::string, std::string> split_override(const std::string& text);
/// The value: TOML if it parses as such; else, if `may_split`, a list of the parts between commas; else a
/// text without quotes.
[[nodiscard]] Value parse_override(std::string_view text, bool may_split);

/// Of the library that parses TOML, "3.4.0". Its headers are kept to this part: nvcc, which compiles all that
/// uses Kokkos on devices, does not take them.
[[nodiscard]] std::string toml_version();

}  // namespace minitaw::deck
