#include "deck/value.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.hpp"

namespace minitaw::deck {

namespace {

/// Bits of a size suffix, or nothing.
std::optional<int> suffix_bits(char c) {
  switch (c) {
  case 'k':
  case 'K':
    return 10;
  case 'm':
  case 'M':
    return 20;
  case 'g':
  case 'G':
    return 30;
  default:
    return std::nullopt;
  }
}

enum class Bad { none, syntax, range };

/// Reads "-12", "4K"; says whether text is no number or a number that no integer holds.
Bad read_size(std::string_view text, std::int64_t& number) {
  int bits = 0;
  if (!text.empty())
    if (const auto suffix = suffix_bits(text.back())) {
      bits = *suffix;
      text.remove_suffix(1);
    }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return Bad::syntax;
  if (error != std::errc()) return Bad::range;
  const std::int64_t limit = INT64_MAX >> bits;
  if (number > limit || number < -limit) return Bad::range;
  number *= std::int64_t{1} << bits;
  return Bad::none;
}

/// 0 for text that is not a number.
double read_real(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t most = 60;
  std::string out(text.substr(0, most));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  if (text.size() > most) out += "...";
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
  std::int64_t number = 0;
  Bad bad = Bad::syntax;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    number = *integer;
    bad = Bad::none;
  } else if (const auto* text = std::get_if<std::string>(&value.data)) {
    bad = read_size(*text, number);
  }
  if (bad == Bad::syntax)
    throw InputError(
        fmt::format("{}: {} is not a whole number; write for example 4096 or \"4K\"", key, describe(value)));
  if (bad == Bad::range || number < least || number > most)
    throw InputError(
        fmt::format("{}: {} is out of range; it must be from {} to {}", key, describe(value), least, most));
  return number;
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

std::string to_choice(const std::string& key, const Value& value, const std::vector<std::string>& choices) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr || std::ranges::find(choices, *text) == choices.end())
    throw InputError(fmt::format("{}: {} is not one of {}{}", key, describe(value), fmt::join(choices, ", "),
                                 text ? fmt::format("; did you mean \"{}\"?", nearest(*text, choices)) : ""));
  return *text;
}

}  // namespace minitaw::deck
