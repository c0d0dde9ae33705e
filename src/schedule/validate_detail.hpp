#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/program.hpp"
#include "schedule/validate.hpp"

/// The checks behind validate(), one file each. A check returns, or throws Refusal with what it found first.
namespace minitaw::schedule::detail {

struct Refusal {
  Violation violation;
};

/// Throws Refusal: "rank 1, tick 3, 'BW s2 m1 h0 a2 x0 g0': <what>".
[[noreturn]] void refuse(Rule rule, const Program& program, int rank, int action, const std::string& what);
/// The part of that message in front of the colon.
[[nodiscard]] std::string place(const Program& program, int rank, int action);
[[nodiscard]] std::string name_of(Slot slot);

/// The actions of each lane of a rank, in order.
using LaneSequences = std::array<std::vector<int>, lanes>;
[[nodiscard]] std::vector<LaneSequences> lane_sequences(const Program& program);

/// clock[l]: how many actions of lane l of the rank are certainly finished. Lanes finish in order, so a
/// counter each says everything that is known inside a rank.
using Clock = std::array<std::int32_t, lanes>;

/// What is certain when each action of a rank starts, and where the action stands in its lane.
struct LocalOrder {
  std::vector<Clock> start;
  std::vector<std::int32_t> position;
};

/// Every action has the slots, shard, peer, communicator and waits that its kind needs, within their ranges.
void check_form(const Program& program);
/// (g) inside one rank: its lanes, with transfers that finish at once, come to the end.
[[nodiscard]] LocalOrder local_order(const Program& program, int rank, const LaneSequences& sequences);
/// (a), (b): conflicting accesses to a slot are ordered by waits, in the order in which they were issued.
void check_hazards(const Program& program, int rank, const LocalOrder& order);
/// (f)
void check_join(const Program& program, int rank, const LocalOrder& order, const LaneSequences& sequences);
/// (h)
void check_slots(const Program& program, int rank);

}  // namespace minitaw::schedule::detail
