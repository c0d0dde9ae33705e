#include "deck/source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <toml++/toml.hpp>

#include "base/error.hpp"
#include "deck/keys.hpp"

namespace minitaw::deck {

namespace {

constexpr std::size_t most_bytes = 1U << 20;  // far above any deck written by hand, far below a data file

/// What a TOML node is called in a message when a deck cannot hold it.
std::string_view kind_of(const toml::node& node) {
  if (node.is_table()) return "a table";
  return "a date or time";
}

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
  refused = kind_of(node);
  return std::nullopt;
}

std::string place(const std::string& path, toml::source_position at) {
  return fmt::format("{}:{}", printable(path), at.line);
}

/// Spaces and tabs off both ends.
std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
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

Value parse_word(std::string_view text) {
  if (auto value = parse_value(text)) return std::move(*value);
  return Value{std::string(text)};
}

Value split(std::string_view text) {
  Value::List list;
  while (true) {
    const auto comma = text.find(',');
    list.push_back(parse_word(trim(text.substr(0, comma))));
    if (comma == std::string_view::npos) return Value{std::move(list)};
    text.remove_prefix(comma + 1);
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

std::vector<Setting> parse_toml(const std::string& text, const std::string& path) {
  std::vector<std::pair<toml::source_position, Setting>> found;
  try {
    const toml::table table = toml::parse(text);
    for (const auto& [key, node] : table) {
      const auto at = key.source().begin;
      std::string_view refused;
      auto value = convert(node, refused);
      const std::string name = printable(key.str());
      if (!value && node.is_table())
        throw InputError(
            fmt::format("{}: unknown table \"{}\"; a deck has no tables, write the keys at the top level "
                        "(nearest key: \"{}\")",
                        place(path, at), name, nearest_key(name)));
      if (!value)
        throw InputError(
            fmt::format("{}: {}: {} is not a value that a deck can hold", place(path, at), name, refused));
      found.emplace_back(at, Setting{std::string(key.str()), std::move(*value), place(path, at)});
    }
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    throw InputError(fmt::format("{}: not TOML: {}", place(path, at), printable(error.description())));
  }
  std::ranges::sort(found, {},
                    [](const auto& item) { return std::pair(item.first.line, item.first.column); });
  std::vector<Setting> settings;
  for (auto& [at, setting] : found) settings.push_back(std::move(setting));
  return settings;
}

std::string override_key(const std::string& text) {
  const auto equals = text.find('=');
  const std::string_view key = trim(std::string_view(text).substr(0, equals));
  if (equals == std::string::npos || key.empty())
    throw InputError(fmt::format("--set {}: write key=value, for example --set seq=4K,8K", printable(text)));
  return std::string(key);
}

Setting parse_override(const std::string& text, bool may_split) {
  Setting setting{override_key(text), {}, "--set"};
  std::string_view value = trim(std::string_view(text).substr(text.find('=') + 1));
  if (auto toml = parse_value(value)) {
    setting.value = std::move(*toml);
    return setting;
  }
  const bool bracketed = value.size() >= 2 && value.front() == '[' && value.back() == ']';
  if (may_split && bracketed) value = value.substr(1, value.size() - 2);  // [1K,2K]: units are not TOML
  const bool list = may_split && (bracketed || value.find(',') != std::string_view::npos);
  setting.value = list ? split(value) : Value{std::string(value)};
  return setting;
}

std::string toml_version() { return fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH); }

}  // namespace minitaw::deck
