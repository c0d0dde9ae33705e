#pragma once

#include <functional>
#include <string>
#include <vector>

// CLI11 makes objects wherever it is included, some six seconds of compiling: only the files that add options
// include it.
namespace CLI {
class App;
}

namespace minitaw::app {

/// How the program was called, and what it will do: the verb that is found on the command line sets `action`.
struct Invocation {
  int& argc;
  char**& argv;
  std::function<int()> action;  ///< returns the exit code

  [[nodiscard]] std::vector<std::string> arguments() const { return {argv, argv + argc}; }
};

/// Each adds its verb to the command line. One file per verb: <verb>.cpp.
void add_run(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_topo(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_predict(CLI::App& app, Invocation& invocation);  ///< where SimGrid was found
void add_show(CLI::App& app, Invocation& invocation);
void add_help(CLI::App& app, Invocation& invocation);

/// The arguments that all verbs on decks share: DECK and --set.
struct DeckOptions {
  std::string path;
  std::vector<std::string> overrides;
};
void add_deck(CLI::App& verb, DeckOptions& options);

/// One line on standard error: "minitaw: <sentence>".
void complain(std::string sentence, bool one_line = true);

/// Writes to standard output and makes sure that all of it arrives: data that are silently cut are worse than
/// none. Throws InputError if it cannot be written; a reader that has seen enough (head) is no error.
void put_out(const std::string& text);

}  // namespace minitaw::app
