#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "comm/nccl/transport.hpp"
#include "possible.hpp"
#include "schedule/program.hpp"
#include "schedule/shapes.hpp"

namespace minitaw::comm::test {

/// Calls visit(request, program) for every `stride`th of all schedules with all options on all groupings.
template <class Visit>
void for_each_program(int ranks, std::size_t stride, const Visit& visit) {
  std::vector<std::string> specs = schedule::shapes::other_specs();
  for (const std::string& spec : schedule::shapes::tawpipe_specs()) specs.push_back(spec);
  const std::vector<int> layers = schedule::shapes::layer_counts(ranks);
  std::size_t turn = 0;
  for (const topology::Groups& groups : schedule::shapes::groupings(ranks))
    for (const std::string& spec : specs)
      for (const int n : {1, 2})
        for (const int replicas : {1, 2}) {
          const schedule::Request request{schedule::parse_spec(spec), groups, n * ranks,
                                          layers[turn % layers.size()], replicas};
          if (ranks % replicas != 0 || !possible(request)) continue;
          if (turn++ % stride == 0) visit(request, schedule::build(request));
        }
}

/// The actions of a rank in the order in which the engine's one thread feeds device queues: of those whose
/// waits have been issued always the one that comes first in the program. Shorter than the program if it gets
/// stuck.
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

/// What holds a launch up besides its stream, its waits and its communicator.
enum class Device {
  streams,       ///< nothing
  one_queue,     ///< no launch begins before those issued earlier on its rank have begun
  one_at_a_time  ///< no launch begins before those issued earlier on its rank are over
};

/// A program as NCCL executes it: all ranks issue their launches, one kernel for each action; a kernel is
/// over when everybody whom it concerns has begun his. Messages on a communicator match in order per pair of
/// ranks, collectives in order.
class Launches {
public:
  explicit Launches(const schedule::Program& program) : program_(program), ranks_(program.ranks.size()) {
    const nccl::Colours colours(program);
    const auto plans = nccl::plan_communicators(program);
    // By plan, from and to (of collectives -1), then by side: those that meet, in order.
    std::map<std::tuple<int, int, int>, std::map<int, std::vector<int>>> calls;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
      for (const int i : issue_order(program.ranks[r])) {
        const schedule::Action& a = program.ranks[r].actions[i];
        const int id = static_cast<int>(launches_.size());
        Launch& launch = launches_.emplace_back(r, &a, static_cast<int>(ranks_[r].order.size()));
        ranks_[r].order.push_back(id);
        ranks_[r].lanes[static_cast<std::size_t>(a.lane)].push_back(id);
        const bool collective = is_collective(a.kind), sends = a.kind == schedule::Kind::send;
        if (!is_communication(a.kind) ||
            (collective && program.communicators[a.communicator].ranks.size() == 1))
          continue;
        const int from = collective ? -1 : sends ? r : a.peer, to = collective ? -1 : sends ? a.peer : r;
        const nccl::Use use = collective ? nccl::Use{.lane = a.lane, .communicator = a.communicator}
                                         : colours.messages(a.payload, from, to);
        const int plan =
            static_cast<int>(std::ranges::find(plans, use, &nccl::CommunicatorPlan::use) - plans.begin());
        calls[{plan, from, to}][collective ? r : sends].push_back(id);
        std::vector<int>& same = ranks_[r].plans[plan];
        if (!same.empty()) launch.before = same.back();
        same.push_back(id);
      }
    for (const auto& [key, sides] : calls) {
      const auto [plan, from, to] = key;
      if (sides.size() != (to < 0 ? plans[plan].ranks.size() : 2)) mismatch_ = "a call that some side lacks";
      else meet(sides);
    }
  }

  /// Empty if those that NCCL lets meet mean each other.
  [[nodiscard]] const std::string& mismatch() const { return mismatch_; }

  /// Lanes on which a rank uses a communicator, at most.
  [[nodiscard]] std::size_t lanes_of_a_communicator() const {
    std::size_t most = 0;
    for (const Rank& rank : ranks_)
      for (const auto& [plan, used] : rank.plans) {
        std::set<schedule::Lane> lanes;
        for (const int id : used) lanes.insert(launches_[id].action->lane);
        most = std::max(most, lanes.size());
      }
    return most;
  }

  /// Empty if everything comes to its end, else what stands still. `host_waits`: a collective holds up its
  /// host until all members have issued it, as when NCCL connects them.
  [[nodiscard]] std::string execute(Device device, bool host_waits) {
    for (Launch& l : launches_) l.issued = l.begun = l.over = false;
    for (Rank& rank : ranks_) rank.host = rank.begun = rank.over = 0, rank.head.fill(0);
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& rank : ranks_) {
        moved |= issue(rank, host_waits);
        for (int lane = 0; lane < schedule::lanes; ++lane) moved |= advance(rank, lane, device);
      }
    }
    for (const Launch& l : launches_)
      if (!l.over)
        return fmt::format("rank {}: {} {}", l.rank, name_of(l.action->lane), to_text(*l.action, program_));
    return {};
  }

private:
  struct Launch {
    int rank;
    const schedule::Action* action;
    int number;                  ///< of this rank's launches
    int before = -1;             ///< on the same communicator
    std::vector<int> meeting{};  ///< all sides of the message or collective
    // in execute
    bool issued = false, begun = false, over = false;
  };

  struct Rank {
    std::vector<int> order;                               ///< of issue
    std::array<std::vector<int>, schedule::lanes> lanes;  ///< their launches
    std::map<int, std::vector<int>> plans;                ///< their launches
    // in execute
    int host = 0, begun = 0,
        over = 0;  ///< launches that the host has behind it; the first that is not so far
    std::array<std::size_t, schedule::lanes> head{};  ///< launches of a lane that are over
  };

  void meet(const std::map<int, std::vector<int>>& sides) {
    const std::vector<int>& first = sides.begin()->second;
    for (const auto& [side, ids] : sides) {
      if (ids.size() != first.size()) {
        mismatch_ = fmt::format("one side has {} calls, another one {}", first.size(), ids.size());
        return;
      }
      for (std::size_t k = 0; k < ids.size(); ++k) {
        const Launch &one = launches_[first[k]], &other = launches_[ids[k]];
        const schedule::Action &a = *one.action, &b = *other.action;
        if (a.payload != b.payload || a.shard != b.shard || a.part != b.part || a.parts != b.parts ||
            (is_point_to_point(a.kind) && a.micro_batch != b.micro_batch) ||
            (is_collective(a.kind) && a.kind != b.kind))
          mismatch_ = fmt::format("rank {} {} meets rank {} {}", one.rank, to_text(a, program_), other.rank,
                                  to_text(b, program_));
        for (const auto& [any, their] : sides)
          if (k < their.size()) launches_[ids[k]].meeting.push_back(their[k]);
      }
    }
  }

  [[nodiscard]] bool all(const std::vector<int>& ids, bool Launch::* state) const {
    return std::ranges::all_of(ids, [&](int id) { return launches_[id].*state; });
  }

  /// The host goes as far as it gets.
  bool issue(Rank& rank, bool host_waits) {
    bool moved = false;
    for (; rank.host < static_cast<int>(rank.order.size()); ++rank.host) {
      Launch& launch = launches_[rank.order[rank.host]];
      moved |= !std::exchange(launch.issued, true);
      if (host_waits && is_collective(launch.action->kind) && !all(launch.meeting, &Launch::issued)) break;
    }
    return moved;
  }

  /// A lane goes as far as it gets.
  bool advance(Rank& rank, int lane, Device device) {
    bool moved = false;
    for (std::size_t& head = rank.head[lane]; head < rank.lanes[lane].size(); ++head) {
      Launch& launch = launches_[rank.lanes[lane][head]];
      if (!launch.begun && !may_begin(rank, launch, device)) break;
      moved |= !std::exchange(launch.begun, true);
      if (!all(launch.meeting, &Launch::begun)) break;
      moved = launch.over = true;
    }
    return moved;
  }

  [[nodiscard]] bool may_begin(Rank& rank, const Launch& launch, Device device) const {
    if (!launch.issued || (launch.before >= 0 && !launches_[launch.before].over)) return false;
    for (int l = 0; l < schedule::lanes; ++l)
      if (static_cast<schedule::Lane>(l) != launch.action->lane &&
          rank.head[l] < static_cast<std::size_t>(launch.action->waits[l]))
        return false;
    const auto pass = [&](int& number, bool Launch::* state) {
      while (launches_[rank.order[number]].*state) ++number;
      return number == launch.number;
    };
    return device == Device::streams ||
           (device == Device::one_queue ? pass(rank.begun, &Launch::begun) : pass(rank.over, &Launch::over));
  }

  const schedule::Program& program_;
  std::vector<Rank> ranks_;
  std::vector<Launch> launches_;
  std::string mismatch_;
};

}  // namespace minitaw::comm::test
