#include "verb.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/cli11.hpp"
#include "cli/parse.hpp"

namespace minitaw::app {

void add_deck(CLI::App& verb, DeckOptions& options) {
  verb.add_option("DECK", options.path, "TOML file that says what to run (minitaw help keys)")->required();
  cli::add_overrides(verb, options.overrides);
}

void complain(const std::string& sentence) {
  std::string line = sentence;
  std::ranges::replace(line, '\n', ' ');
  fmt::print(stderr, "minitaw: {}\n", line);
}

}  // namespace minitaw::app
