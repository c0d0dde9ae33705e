#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/layout.hpp"

namespace minitaw::bench {

/// What the command line asks for. Sizes that are not given come from the deck, or else from default_shape().
struct Options {
  std::string deck;                    ///< empty: one shape
  std::vector<std::string> overrides;  ///< "key=value", as for `minitaw run --set`
  std::optional<std::int64_t> tokens, hidden, ffn, vocab, heads, kv_heads;
  std::optional<model::Dtype> dtype;
  std::int64_t triad_mib = 0;  ///< of each array; 0: from the size of the last cache
  std::string markdown;        ///< empty: no table
  bool verify = false;
  std::string help;  ///< what to print instead of all that, if it was asked for
};

/// Throws InputError for an option that does not exist, or a value that is missing or makes no sense.
[[nodiscard]] Options read_options(const std::vector<std::string>& words);

}  // namespace minitaw::bench
