// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>
#include "schedule/registry.hpp"

namespace minitaw::schedule {
/// What validate() promises of a program; messages and tests use the names.
enum class Rule : std::uint8_t {
  fresh_reads,       ///< every read sees the right shard / micro-batch, finished
  no_overwrite,      ///< nothing writes a slot with a pending reader or writer
  matched_messages,  ///< sends and receives match one to one, in order, per pair and payload
  same_collectives,  ///< all members issue the same collectives in the same order
  exact_gradients,   ///< every update sees each (shard, micro-batch) gradient exactly once
  all_waited,        ///< join follows everything, and nothing follows join
  no_deadlock,       ///< executing it with rendezvous transfers comes to the end
  slots_accounted,   ///< declared slots = addressed slots = peak of live contents
};

template <>
inline constexpr auto table_of<Rule> = named<Rule>({"fresh reads",
    "no overwrite",
    "matched messages",
    "same collectives",
    "exact gradients",
    "all waited",
    "no deadlock",
    "slots accounted"});
static_assert(is_complete(Rule::slots_accounted));

struct Violation {
  Rule rule;
  int rank = -1;
  int action = -1;      ///< index into the rank's actions; -1: the rank as a whole
  std::string message;  ///< one sentence: what, where, what was expected
};

[[nodiscard]] std::optional<Violation> validate(const Program& program);
/// Throws LogicError with the violation.
void require_valid(const Program& program);
Program build_valid(const Request& request);
}  // namespace minitaw::schedule
