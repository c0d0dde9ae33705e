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

#include "comm/nccl/communicators.hpp"
#include "schedule/program.hpp"

namespace minitaw::comm::test {

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
  explicit Launches(const schedule::Program& program)
      : program_(program), colours_(program), plans_(nccl::plan_communicators(program)),
        ranks_(program.ranks.size()) {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) add_rank(r);
    match();
  }

  /// Empty if those that NCCL lets meet mean each other.
  [[nodiscard]] const std::string& mismatch() const { return mismatch_; }

  /// Lanes on which a rank uses a communicator, at most.
  [[nodiscard]] int lanes_of_a_communicator() const {
    std::map<std::pair<int, int>, std::set<schedule::Lane>> lanes;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
      for (const Launch& launch : ranks_[r].launches)
        if (launch.plan >= 0) lanes[{r, launch.plan}].insert(launch.lane);
    std::size_t most = 0;
    for (const auto& [at, used] : lanes) most = std::max(most, used.size());
    return static_cast<int>(most);
  }

  /// Empty if everything comes to its end, else what stands still. `host_waits`: a collective holds up its
  /// host until all members have issued it, as when NCCL connects them.
  [[nodiscard]] std::string execute(Device device, bool host_waits) {
    for (Rank& rank : ranks_) rank.begin();
    arrived_.assign(meetings_.size(), 0);
    issued_.assign(meetings_.size(), 0);
    std::deque<int> dirty;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) dirty.push_back(r);
    while (!dirty.empty()) {
      const int r = dirty.front();
      dirty.pop_front();
      issue(r, host_waits, dirty);
      begin_what_may(r, device, dirty);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (const Launch& launch : ranks_[r].launches)
        if (!launch.over) return fmt::format("rank {}: {}", r, text(static_cast<int>(r), launch));
    return {};
  }

private:
  struct Launch {
    schedule::Lane lane = schedule::Lane::compute;
    int plan = -1;     ///< -1: no communication
    int action = -1;   ///< of RankProgram::actions
    int meeting = -1;  ///< of the message or collective
    bool collective = false;
    int before_in_lane = -1, before_in_plan = -1;  ///< launches
    // in execute
    bool issued = false, begun = false, over = false;
  };

  struct Rank {
    std::vector<Launch> launches;
    std::array<std::vector<int>, schedule::lanes> lanes;  ///< their launches
    // in execute
    int host = 0, begun = 0, finished = 0;  ///< launches issued; the first that has not begun, is not over
    std::array<std::size_t, schedule::lanes> head{};  ///< launches of a lane that are over

    void begin() {
      for (Launch& l : launches) l.issued = l.begun = l.over = false;
      host = begun = finished = 0;
      head.fill(0);
    }
  };

  struct Side {
    int rank, launch;
  };

  [[nodiscard]] int plan_of(const nccl::Use& use) const {
    return static_cast<int>(std::ranges::find(plans_, use, &nccl::CommunicatorPlan::use) - plans_.begin());
  }

  [[nodiscard]] int plan_of(int rank, const schedule::Action& a) const {
    if (!is_communication(a.kind)) return -1;
    if (is_point_to_point(a.kind))
      return plan_of(a.kind == schedule::Kind::send ? colours_.messages(a.payload, rank, a.peer)
                                                    : colours_.messages(a.payload, a.peer, rank));
    if (program_.communicators[a.communicator].ranks.size() == 1) return -1;
    return plan_of(nccl::Use{.lane = a.lane, .communicator = a.communicator});
  }

  void add_rank(int r) {
    Rank& rank = ranks_[r];
    std::map<int, int> last;  // launch of a plan
    for (const int i : issue_order(program_.ranks[r])) {
      const schedule::Action& a = program_.ranks[r].actions[i];
      const int number = static_cast<int>(rank.launches.size());
      Launch& launch = rank.launches.emplace_back();
      launch.lane = a.lane, launch.plan = plan_of(r, a), launch.action = i;
      launch.collective = launch.plan >= 0 && is_collective(a.kind);
      auto& lane = rank.lanes[static_cast<std::size_t>(a.lane)];
      if (!lane.empty()) launch.before_in_lane = lane.back();
      lane.push_back(number);
      if (launch.plan < 0) continue;
      if (const auto found = last.find(launch.plan); found != last.end())
        launch.before_in_plan = found->second;
      last[launch.plan] = number;
    }
  }

  /// Who meets whom, by NCCL's rule.
  void match() {
    std::map<std::tuple<int, int, int, int>, std::vector<Side>> sides;  // plan, from, to (or -1), send?
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
      for (int l = 0; l < static_cast<int>(ranks_[r].launches.size()); ++l) {
        const Launch& launch = ranks_[r].launches[l];
        if (launch.plan < 0) continue;
        const schedule::Action& a = program_.ranks[r].actions[launch.action];
        const bool sends = a.kind == schedule::Kind::send;
        if (launch.collective) sides[{launch.plan, r, -1, 0}].push_back({r, l});
        else sides[{launch.plan, sends ? r : a.peer, sends ? a.peer : r, sends}].push_back({r, l});
      }
    for (const auto& [key, mine] : sides) {
      const auto [plan, from, to, sends] = key;
      if (to < 0 ? from == plans_[plan].ranks.front() : sends == 1) {
        std::vector<std::vector<Side>> all{mine};
        if (to >= 0) all.push_back(sides[{plan, from, to, 0}]);
        else
          for (const int member : plans_[plan].ranks)
            if (member != from) all.push_back(sides[{plan, member, -1, 0}]);
        meet(all);
      } else if (to >= 0 && !sides.contains({plan, from, to, 1})) {
        mismatch_ = "a receive without a send";
      }
    }
  }

  void meet(const std::vector<std::vector<Side>>& all) {
    for (std::size_t k = 0; k < all.front().size(); ++k) {
      const int number = static_cast<int>(meetings_.size());
      std::vector<Side>& meeting = meetings_.emplace_back();
      for (const auto& sides : all) {
        if (sides.size() != all.front().size()) {
          mismatch_ = fmt::format("one side has {} calls, another one {}", all.front().size(), sides.size());
          return;
        }
        compare(all.front()[k], sides[k]);
        meeting.push_back(sides[k]);
        ranks_[sides[k].rank].launches[sides[k].launch].meeting = number;
      }
    }
  }

  void compare(const Side& one, const Side& other) {
    const schedule::Action &a = action(one.rank, launch(one)), &b = action(other.rank, launch(other));
    if (a.payload != b.payload || a.shard != b.shard || a.part != b.part || a.parts != b.parts ||
        (is_point_to_point(a.kind) && a.micro_batch != b.micro_batch) ||
        (is_collective(a.kind) && a.kind != b.kind))
      mismatch_ = fmt::format("rank {} {} meets rank {} {}", one.rank, to_text(a, program_), other.rank,
                              to_text(b, program_));
  }

  [[nodiscard]] const schedule::Action& action(int r, const Launch& launch) const {
    return program_.ranks[r].actions[launch.action];
  }
  [[nodiscard]] Launch& launch(const Side& side) { return ranks_[side.rank].launches[side.launch]; }

  void issue(int r, bool host_waits, std::deque<int>& dirty) {
    Rank& rank = ranks_[r];
    while (rank.host < static_cast<int>(rank.launches.size())) {
      Launch& launch = rank.launches[rank.host];
      const bool stops = host_waits && launch.collective;
      if (!launch.issued) {
        launch.issued = true;
        if (stops)
          if (const int m = launch.meeting; ++issued_[m] == static_cast<int>(meetings_[m].size()))
            for (const Side& side : meetings_[m]) dirty.push_back(side.rank);
      }
      if (stops && issued_[launch.meeting] < static_cast<int>(meetings_[launch.meeting].size())) return;
      ++rank.host;
    }
  }

  [[nodiscard]] bool may_begin(int r, const Launch& launch, int number, Device device) const {
    const Rank& rank = ranks_[r];
    if (!launch.issued) return false;
    for (int l = 0; l < schedule::lanes; ++l)
      if (static_cast<schedule::Lane>(l) != launch.lane &&
          rank.head[l] < static_cast<std::size_t>(action(r, launch).waits[l]))
        return false;
    if (launch.before_in_plan >= 0 && !rank.launches[launch.before_in_plan].over) return false;
    if (device == Device::one_queue && rank.begun < number) return false;
    return device != Device::one_at_a_time || rank.finished == number;
  }

  void begin_what_may(int r, Device device, std::deque<int>& dirty) {
    Rank& rank = ranks_[r];
    for (bool moved = true; moved;) {
      moved = false;
      for (int l = 0; l < schedule::lanes; ++l) {
        if (rank.head[l] == rank.lanes[l].size()) continue;
        const int number = rank.lanes[l][rank.head[l]];
        Launch& launch = rank.launches[number];
        if (launch.begun || !may_begin(r, launch, number, device)) continue;
        moved = launch.begun = true;
        while (rank.begun < static_cast<int>(rank.launches.size()) && rank.launches[rank.begun].begun)
          ++rank.begun;
        if (launch.meeting < 0) finish(r, number, dirty);
        else arrive(launch.meeting, dirty);
      }
    }
  }

  void arrive(int m, std::deque<int>& dirty) {
    if (++arrived_[m] < static_cast<int>(meetings_[m].size())) return;
    for (const Side& side : meetings_[m]) finish(side.rank, side.launch, dirty);
  }

  void finish(int r, int number, std::deque<int>& dirty) {
    Rank& rank = ranks_[r];
    Launch& launch = rank.launches[number];
    launch.over = true;
    ++rank.head[static_cast<std::size_t>(launch.lane)];
    while (rank.finished < static_cast<int>(rank.launches.size()) && rank.launches[rank.finished].over)
      ++rank.finished;
    dirty.push_back(r);
  }

  [[nodiscard]] std::string text(int r, const Launch& launch) const {
    return fmt::format("{} {}", name_of(launch.lane), to_text(action(r, launch), program_));
  }

  const schedule::Program& program_;
  nccl::Colours colours_;
  std::vector<nccl::CommunicatorPlan> plans_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Side>> meetings_;
  std::string mismatch_;
  std::vector<int> arrived_, issued_;
};

}  // namespace minitaw::comm::test
