#pragma once

#include <cstdint>
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

/// A key with its value and where it was written.
struct Setting {
  std::string key;
  Value value;
  std::string where;  ///< "deck.toml:12" or "--set"
};

/// Text for a message: at most 60 characters, no control characters, so that a message stays one line.
[[nodiscard]] std::string printable(std::string_view text);
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
/// One of the given words. Throws InputError that names the nearest.
[[nodiscard]] std::string to_choice(const std::string& key, const Value& value,
                                    const std::vector<std::string>& choices);

}  // namespace minitaw::deck
