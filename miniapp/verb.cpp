// SPDX-License-Identifier: BSD-3-Clause
#include "verb.hpp"
#include "cli/cli11.hpp"

namespace minitaw::app {
Verb::Verb(CLI::App& app, const std::string& name, const std::string& purpose)
    : command_(*app.add_subcommand(name, purpose)) {}

bool Verb::is_chosen() const {
  return command_.parsed();
}

void add_deck(CLI::App& verb, DeckOptions& options) {
  verb.add_option("DECK", options.path, "TOML file that says what to run (minitaw help keys)")
      ->required();
  cli::add_overrides(verb, options.overrides);
}

CLI::Option* add_json(CLI::App& verb, bool& json) {
  return verb.add_flag("--json", json, "JSON on standard output, nothing else");
}

void add_memory(CLI::App& verb,
    const std::string& name,
    std::optional<std::uint64_t>& bytes,
    const std::string& help) {
  constexpr bool kb_is_1000 = false;
  verb.add_option(name, bytes, help)
      ->transform(CLI::AsSizeValue(kb_is_1000).description(""))
      ->check(CLI::Range(1024.0, 1e18).description(""))
      ->type_name("SIZE");
}

void add_flops(
    CLI::App& verb, const std::string& name, double& per_second, const std::string& help) {
  verb.add_option(name, per_second, help)
      ->check(cli::number_of("FLOP/s", 1e3, 1e18))
      ->type_name("FLOP/s");
}
}  // namespace minitaw::app
