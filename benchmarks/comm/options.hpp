#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/groups.hpp"

namespace minitaw::bench {

/// What the command line of minitaw_comm asks for.
struct CommOptions {
  std::string deck;  ///< sizes and groups from its cases; empty: from `bytes`
  std::vector<std::string> overrides;
  std::vector<std::int64_t> bytes = {65'536, 1'048'576, 4'194'304};
  std::optional<topology::Groups> groups;  ///< else those of the deck, else one of all ranks
  std::string transport = "auto";
  int threads = 1;    ///< compute threads of a rank that its waits reckon with
  bool spin = false;  ///< waits as if every thread had a core, whatever there is
  int rounds = 21;    ///< measurements of each operation, ours and raw
  std::uint64_t seed = 1;
  bool verify = false;
  std::string spoil;  ///< the operation whose result is damaged before it is checked
  std::string markdown, json;
  std::string help;  ///< what to print instead of all that, if it was asked for
};

/// Throws InputError.
[[nodiscard]] CommOptions read_options(int argc, char** argv);

}  // namespace minitaw::bench
