#include "deck/value.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <optional>
#include <ranges>
#include <sstream>
#include <string_view>
#include <toml++/toml.hpp>

#include "base/error.hpp"
#include "deck/keys.hpp"

namespace minitaw::deck {

namespace {

/// "-12", "4K"; INT64_MIN for what no integer holds, nothing if it is no number.
std::optional<std::int64_t> read_size(std::string_view text) {
  int bits = 0;
  constexpr std::string_view suffixes = "KkMmGg";
  if (const auto at = text.empty() ? text.npos : suffixes.find(text.back()); at != text.npos) {
    bits = 10 * static_cast<int>(at / 2 + 1);
    text.remove_suffix(1);
  }
  std::int64_t number = 0;
  const std::int64_t limit = INT64_MAX >> bits;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  if (error != std::errc() || number > limit || number < -limit) return INT64_MIN;
  return number * (std::int64_t{1} << bits);
}

/// 0 for text that is not a number.
double read_real(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

/// Bytes of the UTF-8 character that text begins with; 0 if it is none that can be shown.
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7f ? 1 : 0;
  const auto size = static_cast<std::size_t>(std::countl_one(byte(0)));
  const bool control = byte(0) < 0xc2 || (byte(0) == 0xc2 && text.size() > 1 && byte(1) < 0xa0);
  const auto follows = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  const bool whole =
      size >= 2 && size <= 4 && size <= text.size() && std::ranges::all_of(text.substr(1, size - 1), follows);
  return whole && !control ? size : 0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  for (std::size_t characters = 0; !text.empty(); ++characters) {
    if (characters == most) return out + "...";
    const std::size_t size = character_at(text);
    out += size == 0 ? "?" : text.substr(0, size);
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string describe(const Value& value) {
  struct Visitor {
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(const std::string& text) const { return fmt::format("\"{}\"", printable(text)); }
    std::string operator()(const Value::List&) const { return "a list"; }
  };
  return std::visit(Visitor{}, value.data);
}

std::int64_t to_size(const std::string& key, const Value& value, std::int64_t least, std::int64_t most) {
  std::optional<std::int64_t> number;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) number = *integer;
  if (const auto* text = std::get_if<std::string>(&value.data)) number = read_size(*text);
  if (!number)
    throw InputError(
        fmt::format("{}: {} is not a whole number; write for example 4096 or \"4K\"", key, describe(value)));
  if (*number < least || *number > most)
    throw InputError(
        fmt::format("{}: {} is out of range; it must be from {} to {}", key, describe(value), least, most));
  return *number;
}

double to_positive(const std::string& key, const Value& value) {
  double number = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) number = static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(&value.data)) number = *real;
  if (const auto* text = std::get_if<std::string>(&value.data)) number = read_real(*text);
  if (!std::isfinite(number) || number <= 0)
    throw InputError(
        fmt::format("{}: {} is not a number above zero; write for example 1e-3", key, describe(value)));
  return number;
}

std::string to_text(const std::string& key, const Value& value) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr || text->empty())
    throw InputError(fmt::format("{}: {} is not a text in quotes", key, describe(value)));
  if (text->find('\0') != std::string::npos)
    throw InputError(fmt::format("{}: {} contains a NUL character", key, describe(value)));
  return *text;
}

std::size_t to_choice(const std::string& key, const Value& value, const std::vector<std::string>& choices) {
  const auto* text = std::get_if<std::string>(&value.data);
  const auto at = text ? std::ranges::find(choices, *text) : choices.end();
  if (at == choices.end())
    throw InputError(fmt::format("{}: {} is not one of {}{}", key, describe(value), fmt::join(choices, ", "),
                                 text ? fmt::format("; did you mean \"{}\"?", nearest(*text, choices)) : ""));
  return static_cast<std::size_t>(at - choices.begin());
}

namespace {

constexpr std::size_t most_bytes = 1U << 20;  // far above any deck written by hand, far below a data file

/// Nothing for what a deck cannot hold; `refused` then is its name.
std::optional<Value> convert(const toml::node& node, std::string_view& refused) {
  if (const auto* integer = node.as_integer()) return Value{integer->get()};
  if (const auto* real = node.as_floating_point()) return Value{real->get()};
  if (const auto* flag = node.as_boolean()) return Value{flag->get()};
  if (const auto* text = node.as_string()) return Value{text->get()};
  if (const auto* array = node.as_array()) {
    Value::List list;
    for (const toml::node& item : *array) {
      auto value = convert(item, refused);
      if (!value) return std::nullopt;
      list.push_back(std::move(*value));
    }
    return Value{std::move(list)};
  }
  refused = node.is_table() ? "a table" : "a date or time";
  return std::nullopt;
}

std::string place(const std::string& path, toml::source_position at) {
  return fmt::format("{}:{}", printable(path), at.line);
}

/// Without spaces and tabs at either end.
std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// What is wrong with the text of a deck: a key that is there twice is named with both lines.
std::string not_toml(const toml::parse_error& error, const std::string& text, const std::string& path) {
  const std::string what(error.description());
  const auto at = error.source().begin;
  const auto quote = what.find('\'');
  if (what.find("cannot redefine") == std::string::npos || quote == std::string::npos)
    return fmt::format("{}: not TOML: {}", place(path, at), printable(what, 300));
  const std::string key = what.substr(quote + 1, what.find('\'', quote + 1) - quote - 1);
  std::istringstream lines(text);
  std::string line;
  for (std::uint32_t number = 1; number < at.line && std::getline(lines, line); ++number)
    if (trim(std::string_view(line).substr(0, line.find('='))) == key)
      return fmt::format("{}: {} is given twice, first in line {}; keep one of them", place(path, at),
                         printable(key), number);
  return fmt::format("{}: {} is given twice; keep one of them", place(path, at), printable(key));
}

/// One value in TOML syntax, or nothing if the text is anything else (or more).
std::optional<Value> parse_value(std::string_view text) {
  if (text.empty() || text.find_first_of("\n\r#") != std::string_view::npos) return std::nullopt;
  try {
    const toml::table table = toml::parse(fmt::format("value = {}", text));
    std::string_view refused;
    return convert(*table.get("value"), refused);
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string read_text(const std::string& path) {
  const std::string name = printable(path);
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw InputError(fmt::format("deck {} is a folder; name a TOML file", name));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(fmt::format("deck {} cannot be read: no such file, or no permission", name));
  std::string text(most_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw InputError(fmt::format("deck {} cannot be read to its end", name));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > most_bytes)
    throw InputError(fmt::format("deck {} is larger than 1 MiB; a deck is a short TOML text", name));
  if (text.empty())
    throw InputError(fmt::format("deck {} is empty; it needs at least layers, hidden, heads and seq", name));
  return text;
}

Settings parse_toml(const std::string& text, const std::string& path) {
  Settings settings;
  try {
    const toml::table table = toml::parse(text);
    for (const auto& [key, node] : table) {
      const std::string where = place(path, key.source().begin), name = printable(key.str());
      std::string_view refused;
      auto value = convert(node, refused);
      if (!value && node.is_table())
        throw InputError(fmt::format("{}: unknown table \"{}\"; a deck has no tables, write the keys at the "
                                     "top level (nearest key: \"{}\")",
                                     where, name, nearest_key(name)));
      if (!value)
        throw InputError(fmt::format("{}: {}: {} is not a value that a deck can hold", where, name, refused));
      settings[require_key(std::string(key.str()), where)->name] = {std::move(*value), where};
    }
  } catch (const toml::parse_error& error) {
    throw InputError(not_toml(error, text, path));
  }
  return settings;
}

std::pair<std::string, std::string> split_override(const std::string& text) {
  const auto equals = text.find('=');
  const std::string_view key = trim(std::string_view(text).substr(0, equals));
  if (equals == std::string::npos || key.empty())
    throw InputError(fmt::format("--set {}: write key=value, for example --set seq=4K,8K", printable(text)));
  return {std::string(key), std::string(trim(std::string_view(text).substr(equals + 1)))};
}

Value parse_override(std::string_view text, bool may_split) {
  if (auto toml = parse_value(text)) return std::move(*toml);
  const bool bracketed = text.size() >= 2 && text.front() == '[' && text.back() == ']';
  if (!may_split || !(bracketed || text.find(',') != std::string_view::npos)) return Value{std::string(text)};
  if (bracketed) text = text.substr(1, text.size() - 2);  // [1K,2K]: units are not TOML
  Value::List list;
  for (const auto part : std::views::split(text, ',')) {
    const std::string_view word = trim({part.begin(), part.end()});
    auto value = parse_value(word);
    list.push_back(value ? std::move(*value) : Value{std::string(word)});
  }
  return Value{std::move(list)};
}

std::string toml_version() { return fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH); }

}  // namespace minitaw::deck
