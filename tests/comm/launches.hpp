// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/shapes.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::comm::test {
/// Calls visit(request, program) for every `stride`th of all schedules with all options on all groupings.
void for_each_program(int ranks, std::size_t stride, const auto& visit) {
  const auto specs = schedule::shapes::joined({schedule::shapes::other_specs(), schedule::shapes::tawpipe_specs()});
  std::size_t turn = 0;
  schedule::shapes::for_each_request(ranks, specs, 2, 2, [&](const schedule::Request& request) {
    if (turn++ % stride == 0) visit(request, schedule::build(request));
  });
}

/// The actions of a rank in the order of the engine's one thread; shorter than the program if it gets stuck.
inline std::vector<int> issue_order(const schedule::RankProgram& rank) {
  std::array<std::vector<int>, schedule::lanes> queues;
  for (int l = 0; l < schedule::lanes; ++l) queues[l] = actions_of(rank, static_cast<schedule::Lane>(l));
  std::vector<int> order;
  std::array<std::size_t, schedule::lanes> gone{};
  const auto may_go = [&](int l) {
    if (gone[l] == queues[l].size()) return false;
    const auto& waits = rank.actions[queues[l][gone[l]]].waits;
    for (int k = 0; k < schedule::lanes; ++k)  // its own lane is in order
      if (k != l && static_cast<std::size_t>(waits[k]) > gone[k]) return false;
    return true;
  };
  for (;;) {
    int chosen = -1;
    for (int l = 0; l < schedule::lanes; ++l)
      if (may_go(l) && (chosen < 0 || queues[l][gone[l]] < queues[chosen][gone[chosen]])) chosen = l;
    if (chosen < 0) return order;
    order.push_back(queues[chosen][gone[chosen]++]);
  }
}

/// The program as NCCL executes it at worst. It tells messages apart by their communicator alone, so those of
/// inputs, and those of gradients, have one payload here, and what they really are is part of their shard.
/// No launch begins before those issued earlier on its rank are over: if that comes to an end, it does so
/// whatever streams and hosts, which may wait for each other in a collective, let begin earlier.
inline schedule::Program one_at_a_time(schedule::Program program) {
  using schedule::Payload;
  for (schedule::RankProgram& rank : program.ranks) {
    std::array<std::int32_t, schedule::lanes> issued{};
    for (const int i : issue_order(rank)) {
      schedule::Action& a = rank.actions[i];
      a.waits = issued;
      ++issued[index_of(a.lane)];
      if (!is_point_to_point(a.kind)) continue;
      const bool input = lane_of(schedule::Kind::send, a.payload, false) == schedule::Lane::inputs_send;
      a.shard = 16 * a.shard + static_cast<int>(a.payload);
      a.payload = input ? Payload::weights : Payload::gradient;
    }
  }
  return program;
}

/// Why the program comes to no end, or what meets what it does not mean; empty if all is well.
inline std::string fault_of(const schedule::Program& program) {
  return minitaw::test::refusal_of<LogicError>(
      [&] { (void)schedule::simulate(program, [](int, const schedule::Action&) { return 1.0; }); });
}
}  // namespace minitaw::comm::test
