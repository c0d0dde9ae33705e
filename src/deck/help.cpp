// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/ranges.h>
#include "deck/keys.hpp"

namespace minitaw::deck {
namespace {
std::string default_of(const Setting& key) {
  if (key.required())
    return "required";
  return key.initial.empty() ? key.fallback : key.initial;
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
  std::string text = fmt::format("{}: {}\n", entry.name, entry.doc);
  for (const auto& [option, values, doc, without_effect] : entry.options)
    text += fmt::format("    {}:{}={}\n        {}{}\n",
        entry.name,
        option,
        values.empty() ? "TEXT" : fmt::format("{}", fmt::join(values, "|")),
        doc,
        values.empty() ? "" : fmt::format(" (default: {})", values[0]));
  return text + (entry.options.empty() ? "    no options\n" : "");
}

std::string help_text() {
  std::string text = fmt::format("{}\n", rules);
  for (const Setting& key : keys())
    text += help_text(key);
  text += "\nSchedules and their options:\n";
  for (const schedule::Entry& entry : schedule::registry())
    text += help_text(entry);
  return text;
}
}  // namespace minitaw::deck
