// SPDX-License-Identifier: BSD-3-Clause
#include "verb.hpp"
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include "base/error.hpp"
#include "cli/cli11.hpp"

namespace minitaw::app {
std::vector<std::string> verb_names(const CLI::App& app) {
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  return list_of(verbs, [](const CLI::App* verb) { return verb->get_name(); });
}

void add_deck(CLI::App& verb, DeckOptions& options) {
  verb.add_option("DECK", options.path, "TOML file that says what to run (minitaw help keys)")
      ->required();
  cli::add_overrides(verb, options.overrides);
}

namespace {
using Units = std::map<std::string, double>;

/// A number from `least` to 1e18, with one of the units or without.
double parse_quantity(const std::string& option,
    const std::string& text,
    const Units& units,
    double least,
    const std::string& expected) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  const auto unit = units.find(std::string(rest, end));
  if (unit != units.end())
    value *= unit->second;
  if (code != std::errc() || (unit == units.end() && rest != end) ||
      !(value >= least && value <= 1e18))
    throw InputError(fmt::format("{}: \"{}\" is not a {}", option, text, expected));
  return value;
}

}  // namespace

void add_memory(CLI::App& verb,
    const std::string& name,
    std::optional<std::uint64_t>& bytes,
    const std::string& help) {
  constexpr double K = 1024, M = K * K, G = K * M, T = K * G;
  static const Units units = {
      {"K", K}, {"M", M}, {"G", G}, {"T", T}, {"KiB", K}, {"MiB", M}, {"GiB", G}, {"TiB", T}};
  const auto store = [name, &bytes](const std::string& text) {
    bytes = static_cast<std::uint64_t>(
        parse_quantity(name, text, units, K, "memory that holds a model; write for example 80G"));
  };
  verb.add_option_function<std::string>(name, store, help)->type_name("SIZE");
}

void add_flops(
    CLI::App& verb, const std::string& name, double& per_second, const std::string& help) {
  const auto store = [name, &per_second](const std::string& text) {
    static const Units units = {{"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};
    per_second =
        parse_quantity(name, text, units, 1e3, "rate that a device has; write for example 400T");
  };
  verb.add_option_function<std::string>(name, store, help)->type_name("RATE");
}

void add_table(CLI::App& verb, TableOptions& options, bool with_columns) {
  CLI::Option* wide = verb.add_flag(
      "--wide", options.wide, "all columns, on a terminal too, where else a line is fitted to it");
  if (with_columns)
    verb.add_option("--columns",
            options.columns,
            "these columns of the table or the summary: step,memory,cv")
        ->delimiter(',')
        ->type_name("NAMES")
        ->excludes(wide);
}

record::TableLayout layout_of(const TableOptions& options, int after) {
  const int width = options.wide ? 0 : terminal_width();
  return {width > 0 ? std::max(1, width - after) : 0, options.columns};
}
}  // namespace minitaw::app
