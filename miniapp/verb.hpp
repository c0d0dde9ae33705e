// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include "print.hpp"

// CLI11 takes six seconds to compile: only files that add options include it.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace minitaw::app {
/// Exit codes; 0 is success.
inline constexpr int failure_code = 1, bad_input_code = 2;

struct Invocation {
  int& argc;
  char**& argv;

  std::vector<std::string> arguments() const { return {argv, argv + argc}; }
};

/// A verb of the command line: its options, and what it does.
class Verb {
public:
  /// Adds the verb to the command line.
  Verb(CLI::App& app, const std::string& name, const std::string& purpose);
  Verb& operator=(Verb&&) = delete;
  virtual ~Verb() = default;
  bool is_chosen() const;
  /// Executes the verb with the options that were parsed. Returns the exit code.
  virtual int execute(const Invocation& invocation) = 0;

protected:
  CLI::App& command_;
};

using Verbs = std::vector<std::unique_ptr<Verb>>;
/// All verbs of this program, in the order of its help.
Verbs make_verbs(CLI::App& app, const Invocation& invocation);
// Each verb has a file <verb>.cpp, which defines it.
std::unique_ptr<Verb> make_run(CLI::App& app);
std::unique_ptr<Verb> make_verify(CLI::App& app);
std::unique_ptr<Verb> make_plan(CLI::App& app);
std::unique_ptr<Verb> make_show(CLI::App& app);
std::unique_ptr<Verb> make_topo(CLI::App& app);
std::unique_ptr<Verb> make_help(CLI::App& app);

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
