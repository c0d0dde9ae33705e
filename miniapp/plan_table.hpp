#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "plan_case.hpp"

namespace minitaw::app {

/// What the table over all cases of a deck shows of one.
struct PlanRow {
  int number = 0;  ///< from 0
  std::string schedule, groups, micro_batch, slots;
  int ranks = 0, replicas = 1, micro_batches = 0, ticks = 0;
  std::int64_t seq = 0;
  double inside = 0, between = 0;                            ///< bytes per step, mean over the ranks
  std::uint64_t nic_out = 0, nic_in = 0;                     ///< bytes per step of the busiest group
  std::optional<double> nic_s;                               ///< seconds that this takes at least
  std::array<std::size_t, schedule::memory_kinds> memory{};  ///< bytes of the rank that needs most
  double idle = 0;                                           ///< share of the compute lanes
};
[[nodiscard]] PlanRow row_of(const CasePlan& plan, int number);

/// Two lines of names and units that begin with #, then one aligned line a case. Replicas,
/// sequence length and micro-batches are left out where they are the same in all cases.
[[nodiscard]] std::string to_text(const std::vector<PlanRow>& rows);

/// "24 ranks in groups 8+8+8", and in how many replicas if there are several.
[[nodiscard]] std::string ranks_text(const deck::Case& c);

/// "3/2/8/0/1": slots for weights, gradients, what F keeps, what B leaves for W and hidden states.
[[nodiscard]] std::string slots_text(const schedule::RankProgram& rank);

}  // namespace minitaw::app
