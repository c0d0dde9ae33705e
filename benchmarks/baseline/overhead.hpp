#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace minitaw::bench {

/// A case's steps by the engine and by its baseline, in pairs.
struct Overhead {
  deck::Case settings;
  std::size_t actions = 0;               ///< of a step
  std::vector<double> engine_s, twin_s;  ///< seconds, by pair
};

/// Executes warm-up and `pairs` pairs of steps, in each pair the one after the other, who is first changing from
/// pair to pair. Throws Differ if a loss is not equal to the bit.
[[nodiscard]] Overhead measure_overhead(const deck::Case& c, int pairs);

struct Differ : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What the engine takes longer, as a share of the baseline's time, of each pair; ascending.
[[nodiscard]] std::vector<double> shares(const Overhead& overhead);

/// Markdown, a row per case.
[[nodiscard]] std::string table(const std::vector<Overhead>& all);

}  // namespace minitaw::bench
