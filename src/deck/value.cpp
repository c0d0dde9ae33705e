// SPDX-License-Identifier: BSD-3-Clause
#include "deck/value.hpp"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/ostream.h>
#include <fmt/ranges.h>
#include <fstream>
#include <optional>
#include <ranges>
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
    bits = 10 * (at / 2 + 1);
    text.remove_suffix(1);
  }
  std::int64_t number = 0;
  const std::int64_t limit = INT64_MAX >> bits;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size())
    return std::nullopt;
  if (error != std::errc() || number > limit || number < -limit)
    return INT64_MIN;
  return number * (std::int64_t{1} << bits);
}

constexpr std::size_t most_bytes =
    1U << 20;  // far above any deck written by hand, far below a data file

/// Nothing for what a deck cannot hold.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string())
    return text->get();
  if (const auto* integer = node.as_integer())
    return std::to_string(integer->get());
  if (const auto* truth = node.as_boolean())
    return truth->get() ? "true" : "false";
  if (const auto* real = node.as_floating_point())
    return fmt::format("{}", fmt::streamed(*real));
  return std::nullopt;
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '"' || text.front() == '\'');
  return std::string(quoted ? text.substr(1, text.size() - 2) : text);
}

GivenKey parse_words(std::string_view text, bool may_split) {
  text = trim(text);
  const bool bracketed = text.size() >= 2 && text.front() == '[' && text.back() == ']';
  if (!bracketed && !(may_split && text.find(',') != std::string_view::npos))
    return {{unquoted(text)}, false, "--set"};
  if (bracketed)
    text = text.substr(1, text.size() - 2);
  GivenKey written{{}, true, "--set"};
  for (const auto part : std::views::split(text, ','))
    written.values.push_back(unquoted(trim({part.begin(), part.end()})));
  return written;
}
}  // namespace

std::string in_quotes(std::string_view text) {
  return fmt::format("\"{}\"", printable(text));
}

std::int64_t to_size(const std::string& text, std::int64_t least, std::int64_t most) {
  const std::optional<std::int64_t> number = read_size(text);
  if (!number)
    throw InputError("{} is not a whole number; write for example 4096 or \"4K\"", in_quotes(text));
  if (*number < least || *number > most)
    throw InputError("{} is out of range; it must be from {} to {}", in_quotes(text), least, most);
  return *number;
}

double to_positive(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number) ||
      number <= 0)
    throw InputError("{} is not a number above zero; write for example 1e-3", in_quotes(text));
  return number;
}

std::size_t to_choice(const std::string& text, const std::vector<std::string>& choices) {
  const auto at = std::ranges::find(choices, text);
  if (at == choices.end())
    throw InputError("{} is not one of {}{}",
        in_quotes(text),
        fmt::join(choices, ", "),
        did_you_mean(text, choices));
  return at - choices.begin();
}

std::string read_text(const std::string& path) {
  const std::string name = printable(path);
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw InputError("deck {} is a folder; name a TOML file", name);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw InputError("deck {} cannot be read: no such file, or no permission", name);
  std::string text(most_bytes + 1, '\0');
  file.read(text.data(), std::ssize(text));
  if (file.bad())
    throw InputError("deck {} cannot be read to its end", name);
  text.resize(file.gcount());
  if (text.size() > most_bytes)
    throw InputError("deck {} is larger than 1 MiB; a deck is a short TOML text", name);
  if (text.empty())
    throw InputError("deck {} is empty; it needs at least layers, hidden, heads and seq", name);
  return text;
}

GivenKeys parse_toml(const std::string& text, const std::string& path) {
  const auto place = [&](const auto& source) {
    return fmt::format("{}:{}", printable(path), source.begin.line);
  };
  GivenKeys given;
  try {
    const toml::table table = toml::parse(text);
    for (const auto& [key, node] : table) {
      const toml::array* const list = node.as_array();
      GivenKey written{{}, list != nullptr, place(key.source())};
      const auto add = [&](const toml::node& item) {
        const std::optional<std::string> value = text_of(item);
        if (!value)
          throw InputError("{}: {}: a deck holds numbers, texts, true, false and lists of "
                           "them at its top level, but no {}",
              written.where,
              printable(key.str()),
              fmt::streamed(item.type()));
        written.values.push_back(*value);
      };
      if (list == nullptr)
        add(node);
      else
        std::ranges::for_each(*list, add);
      given[require_key(std::string(key.str()), written.where)->name] = std::move(written);
    }
  } catch (const toml::parse_error& error) {
    throw InputError(
        "{}: not TOML: {}", place(error.source()), printable(error.description(), 300));
  }
  return given;
}

void override_key(GivenKeys& given, const std::string& text) {
  const auto equals = text.find('=');
  const std::string name(trim(std::string_view(text).substr(0, equals)));
  if (equals == std::string::npos || name.empty())
    throw InputError("--set {}: write key=value, for example --set seq=4K,8K", printable(text));
  const Setting* key = require_key(name, "--set");
  if (const auto found = given.find(key->name);
      found != given.end() && found->second.where == "--set")
    throw InputError(
        "--set: {} is set twice; give it once, as a list if it shall be swept", key->name);
  std::erase_if(given, [&](const auto& other) {
    return find_key(other.first)->meaning() == key->meaning() && other.second.where != "--set";
  });
  given[key->name] = parse_words(std::string_view(text).substr(equals + 1), key->axis);
}
}  // namespace minitaw::deck
