// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include "instruments/predict/search.hpp"

/// The rating of a deck on a machine: the geometric mean, over its lengths of sequences, of the
/// rate of the fastest case (docs/acceptance.md).
namespace minitaw::predict {
/// Parts of a machine of which half is taken away, to see what they are worth.
enum class Part { between, inside, memory };
using Losses = std::map<Part, double>;  ///< share of a rate that is lost

/// By how much a measured rating fell short of the predicted one at most (docs/predict.md).
inline constexpr double margin = 0.05;

/// A case of a rating.
struct RatedCase {
  Case asked;
  Prediction prediction;            ///< without spans
  std::map<Part, double> halved{};  ///< seconds of the same step with half of a part
};

struct Rating {
  std::string name;  ///< "deck", "best" or "network"
  double tokens_per_s = 0;
  double hours = 0;                ///< of a run of its cases
  Losses losses{};                 ///< with the settings that are best then
  std::vector<RatedCase> cases{};  ///< one of each length, rising
};

struct Ratings {
  std::vector<Rating> all;
  std::vector<std::string> notes;
};

/// Rates the cases of a deck, which differ in schedule and length alone, as they are; with the best
/// settings that the run rules allow; and in the case that shows the network, if there are several
/// nodes. Throws InputError if no case of a length fits.
Ratings rate(
    const std::vector<Case>& cases, int network_replicas, const Machine& machine, double seconds);
/// What takes most of a step, "network 81 %": a part of which half makes the step twice as long
/// takes all of it, and what no part takes is computing.
std::string limit_of(const RatedCase& rated);
/// Timed steps of a repetition, with which a case is timed for ten seconds and a reserve.
int steps_of(const Case& c, double step);
/// The case of the network figure: every micro-batch fetches all weights from the other nodes.
Case network_case(const std::vector<Case>& cases, int replicas);
}  // namespace minitaw::predict
