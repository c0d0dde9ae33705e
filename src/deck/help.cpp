// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <fmt/ranges.h>
#include "deck/keys.hpp"

namespace minitaw::deck {
namespace {
std::string default_of(const Setting& key) {
  if (key.required())
    return "required";
  return key.initial.empty() ? key.fallback : key.initial;
}

std::string title_of(const schedule::Entry& entry) {
  const char* none = entry.options.empty() ? "    no options\n" : "";
  return fmt::format("{}: {}\n{}", entry.name, entry.doc, none);
}

std::string option_text(const schedule::Entry& entry, const schedule::OptionDoc& option) {
  const std::vector<std::string>& values = option.values;
  return fmt::format("    {}:{}={}\n        {}{}\n",
      entry.name,
      option.name,
      values.empty() ? "TEXT" : fmt::format("{}", fmt::join(values, "|")),
      option.doc,
      values.empty() ? "" : fmt::format(" (default: {})", values[0]));
}

/// The first schedule with this option, all of it alike.
const schedule::Entry& first_with(const schedule::OptionDoc& option) {
  const auto alike = [&](const schedule::OptionDoc& other) {
    return other.name == option.name && other.values == option.values && other.doc == option.doc;
  };
  return *std::ranges::find_if(schedule::registry(),
      [&](const schedule::Entry& entry) { return std::ranges::any_of(entry.options, alike); });
}

constexpr std::string_view rules =
    R"(A deck is a TOML file with keys at the top level; `--set key=value` replaces a key, or the
other key that sets the same quantity. A size is a whole number or a text with a suffix in steps
of 1024: "4K", "1M", "2G". A key marked as an axis also takes a list; the cases are all
combinations of the lists. A combination that cannot be run is left out with a note. It is an
error if none is left, or if the job has too few ranks for one. An option that has no effect, as
cut without slices, is left out with a note; equal cases run once.
)";
}  // namespace

std::string help_text(const Setting& key) {
  return fmt::format("{} ({}{}; default: {})\n    {}\n    e.g. {}\n",
      key.name,
      key.form.type,
      key.axis ? ", axis" : "",
      default_of(key),
      key.doc,
      key.example());
}

std::string help_text(const schedule::Entry& entry) {
  std::string text = title_of(entry);
  for (const schedule::OptionDoc& option : entry.options)
    text += option_text(entry, option);
  return text;
}

std::string help_text() {
  std::string text = fmt::format("{}\n", rules);
  for (const Setting& key : keys())
    text += help_text(key);
  text += "\nSchedules and their options:\n";
  for (const schedule::Entry& entry : schedule::registry()) {
    text += title_of(entry);
    for (const schedule::OptionDoc& option : entry.options) {
      const schedule::Entry& first = first_with(option);
      text += first.name == entry.name
                  ? option_text(entry, option)
                  : fmt::format("    {}:{}: as of {}\n", entry.name, option.name, first.name);
    }
  }
  return text;
}
}  // namespace minitaw::deck
