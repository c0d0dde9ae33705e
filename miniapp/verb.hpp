// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <optional>
#include "print.hpp"

// CLI11 costs six seconds of compiling wherever it is included: only the files that add options do
// so.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace minitaw::app {
struct Invocation {
  int& argc;
  char**& argv;
  int code = 0;  ///< the exit code, which the callback of the verb sets

  std::vector<std::string> arguments() const { return {argv, argv + argc}; }
};

/// Adds all verbs of this program.
void add_verbs(CLI::App& app, Invocation& invocation);
// Each verb has a file <verb>.cpp, which defines the function that adds it to the command line.
void add_run(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_show(CLI::App& app, Invocation& invocation);
void add_topo(CLI::App& app, Invocation& invocation);
void add_help(CLI::App& app, Invocation& invocation);

/// The arguments that all verbs on decks share: DECK and --set.
struct DeckOptions {
  std::string path;
  std::vector<std::string> overrides;
};

void add_deck(CLI::App& verb, DeckOptions& options);
/// The option --json.
CLI::Option* add_json(CLI::App& verb, bool& json);
/// An option for a size of memory: "80G" or "512M", in steps of 1024.
void add_memory(CLI::App& verb,
    const std::string& name,
    std::optional<std::uint64_t>& bytes,
    const std::string& help);
/// An option for FLOP/s: "400e12".
void add_flops(
    CLI::App& verb, const std::string& name, double& per_second, const std::string& help);
}  // namespace minitaw::app
