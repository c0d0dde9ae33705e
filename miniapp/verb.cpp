#include "verb.hpp"
#include "cli/cli11.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::app {

void add_deck(CLI::App& verb, DeckOptions& options) {
  verb.add_option("DECK", options.path, "TOML file that says what to run (minitaw help keys)")->required();
  verb.add_option("--set", options.overrides, "replace a key of the deck; a list is swept: --set seq=4K,8K")
      ->type_name("KEY=VALUE")
      ->type_size(1)
      ->allow_extra_args(false);
}

void complain(const std::string& sentence) {
  std::string line = sentence;
  std::ranges::replace(line, '\n', ' ');
  fmt::print(stderr, "minitaw: {}\n", line);
}

}  // namespace minitaw::app
