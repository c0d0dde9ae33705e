// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>
#include "instruments/screen/screening.hpp"

/// Comparisons of one quantity, of which judge() makes a judgement.
namespace minitaw::screen {
/// Parts that are slower than their peers, and the smallest fault that would have been found among
/// them (see Smallest).
struct Slower {
  std::vector<Culprit> culprits{};
  double smallest = std::numeric_limits<double>::quiet_NaN();
};

/// Compares ranks, nodes and adapters. `loaded`: by rank, whether other programs had its cores.
[[nodiscard]] Slower slower_parts(const Machine& machine,
    const Measured& measured,
    const Rule& rule,
    const std::vector<bool>& loaded);

/// Says whether a culprit at this end accounts for what a link shows.
using Explained = std::function<bool(int rank, const Evidence& evidence)>;
/// Compares links with what their ends reach otherwise.
[[nodiscard]] Slower slower_links(const Machine& machine,
    const Measured& measured,
    const Rule& rule,
    const std::vector<bool>& loaded,
    const Explained& explained);

/// Parts of which this quantity is below what is known of it, by the medians of all rounds. Leaves
/// out whom `named` names for the same quantity.
[[nodiscard]] std::vector<Culprit> below_known(
    const Machine& machine, const Measured& measured, const std::vector<Culprit>& named);
}  // namespace minitaw::screen
