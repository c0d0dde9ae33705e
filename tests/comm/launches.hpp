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

#include "comm/nccl/teams.hpp"
#include "issue_order.hpp"
#include "schedule/program.hpp"

namespace minitaw::comm::test {

/// What holds a launch up besides its stream, its waits and its communicator.
enum class Device {
  streams,       ///< nothing
  one_queue,     ///< no launch begins before those issued earlier on its rank have begun
  one_at_a_time  ///< no launch begins before those issued earlier on its rank are over
};

/// A program as NCCL plays it: all ranks issue their launches, one kernel for each communicator of a batch; a
/// kernel is over when everybody whom it concerns has begun his. Messages on a communicator match in order
/// per pair of ranks, collectives in order.
class Launches {
public:
  /// `forwards`: the communicators of a batch in the order of the teams, else the other way round.
  Launches(const schedule::Program& program, bool forwards)
      : program_(program), colours_(program), teams_(nccl::teams_of(program)), ranks_(program.ranks.size()) {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) add_rank(r, forwards);
    match();
  }

  /// Empty if those that NCCL lets meet mean each other.
  [[nodiscard]] const std::string& mismatch() const { return mismatch_; }

  /// Lanes on which a rank uses a communicator, at most.
  [[nodiscard]] int lanes_of_a_communicator() const {
    std::map<std::pair<int, int>, std::set<schedule::Lane>> lanes;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
      for (const Launch& launch : ranks_[r].launches)
        if (launch.team >= 0) lanes[{r, launch.team}].insert(launch.lane);
    std::size_t most = 0;
    for (const auto& [at, used] : lanes) most = std::max(most, used.size());
    return static_cast<int>(most);
  }

  /// Empty if everything comes to its end, else what stands still. `host_waits`: a collective holds up its
  /// host until all members have issued it, as when NCCL connects them.
  [[nodiscard]] std::string play(Device device, bool host_waits) {
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
    int team = -1;              ///< -1: no communication
    std::vector<int> actions;   ///< of RankProgram::actions
    std::vector<int> meetings;  ///< one per message, or that of the collective
    bool collective = false;
    std::array<int, schedule::lanes> waits{};
    int ends = 0;                                  ///< actions of the lane that are over with it
    int before_in_lane = -1, before_in_team = -1;  ///< launches
    // in play
    bool issued = false, begun = false, over = false;
    int open = 0;
  };

  struct Rank {
    std::vector<Launch> launches;
    std::array<std::vector<int>, schedule::lanes> lanes;  ///< their launches
    // in play
    int host = 0, begun = 0, finished = 0;  ///< launches issued; the first that has not begun, is not over
    std::array<std::size_t, schedule::lanes> head{};
    std::array<int, schedule::lanes> over{};

    void begin() {
      for (Launch& l : launches) {
        l.issued = l.begun = l.over = false;
        l.open = static_cast<int>(l.meetings.size());
      }
      host = begun = finished = 0;
      head.fill(0);
      over.fill(0);
    }
  };

  struct Side {
    int rank, launch, action;
  };

  [[nodiscard]] int team_of(const nccl::Use& use) const {
    return static_cast<int>(std::ranges::find(teams_, use, &nccl::Team::use) - teams_.begin());
  }

  [[nodiscard]] int team_of(int rank, const schedule::Action& a) const {
    if (!is_communication(a.kind)) return -1;
    if (is_point_to_point(a.kind))
      return team_of(a.kind == schedule::Kind::send ? colours_.messages(a.payload, rank, a.peer)
                                                    : colours_.messages(a.payload, a.peer, rank));
    if (program_.communicators[a.communicator].ranks.size() == 1) return -1;
    return team_of(nccl::Calls{a.lane, a.communicator});
  }

  void add_rank(int r, bool forwards) {
    Rank& rank = ranks_[r];
    std::array<int, schedule::lanes> ends{};
    std::map<int, int> last;  // launch of a team
    for (const Issued& issued : issue_order(program_.ranks[r])) {
      std::map<int, std::vector<int>> by_team;
      for (const int i : issued.unit.actions)
        by_team[(forwards ? 1 : -1) * team_of(r, program_.ranks[r].actions[i])].push_back(i);
      auto& lane = rank.lanes[static_cast<std::size_t>(issued.lane)];
      int& end = ends[static_cast<std::size_t>(issued.lane)];
      std::size_t left = by_team.size();
      for (const auto& [signed_team, actions] : by_team) {
        const schedule::Kind kind = program_.ranks[r].actions[actions.front()].kind;
        const int team = is_communication(kind) ? team_of(r, program_.ranks[r].actions[actions.front()]) : -1;
        const int number = static_cast<int>(rank.launches.size());
        Launch& launch = rank.launches.emplace_back();
        launch.lane = issued.lane, launch.team = team, launch.actions = actions, launch.waits = issued.waits;
        launch.collective = team >= 0 && is_collective(kind);
        if (--left == 0) end += static_cast<int>(issued.unit.actions.size());
        launch.ends = end;
        if (!lane.empty()) launch.before_in_lane = lane.back();
        lane.push_back(number);
        if (team < 0) continue;
        if (const auto found = last.find(team); found != last.end()) launch.before_in_team = found->second;
        last[team] = number;
      }
    }
  }

  /// Who meets whom, by NCCL's rule.
  void match() {
    std::map<std::tuple<int, int, int, int>, std::vector<Side>> sides;  // team, from, to (or -1), send?
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r)
      for (int l = 0; l < static_cast<int>(ranks_[r].launches.size()); ++l) {
        const Launch& launch = ranks_[r].launches[l];
        if (launch.team < 0) continue;
        for (const int i : launch.actions) {
          const schedule::Action& a = program_.ranks[r].actions[i];
          const bool sends = a.kind == schedule::Kind::send;
          if (launch.collective) sides[{launch.team, r, -1, 0}].push_back({r, l, i});
          else sides[{launch.team, sends ? r : a.peer, sends ? a.peer : r, sends}].push_back({r, l, i});
        }
      }
    for (const auto& [key, mine] : sides) {
      const auto [team, from, to, sends] = key;
      if (to < 0 ? from == teams_[team].ranks.front() : sends == 1) {
        std::vector<std::vector<Side>> all{mine};
        if (to >= 0) all.push_back(sides[{team, from, to, 0}]);
        else
          for (const int member : teams_[team].ranks)
            if (member != from) all.push_back(sides[{team, member, -1, 0}]);
        meet(all);
      } else if (to >= 0 && !sides.contains({team, from, to, 1})) {
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
        ranks_[sides[k].rank].launches[sides[k].launch].meetings.push_back(number);
      }
    }
  }

  void compare(const Side& one, const Side& other) {
    const schedule::Action &a = program_.ranks[one.rank].actions[one.action],
                           &b = program_.ranks[other.rank].actions[other.action];
    if (a.payload != b.payload || a.shard != b.shard || a.part != b.part || a.parts != b.parts ||
        (is_point_to_point(a.kind) && a.micro_batch != b.micro_batch) ||
        (is_collective(a.kind) && a.kind != b.kind))
      mismatch_ = fmt::format("rank {} {} meets rank {} {}", one.rank, to_text(a, program_), other.rank,
                              to_text(b, program_));
  }

  void issue(int r, bool host_waits, std::deque<int>& dirty) {
    Rank& rank = ranks_[r];
    while (rank.host < static_cast<int>(rank.launches.size())) {
      Launch& launch = rank.launches[rank.host];
      const bool stops = host_waits && launch.collective;
      if (!launch.issued) {
        launch.issued = true;
        if (stops)
          if (const int m = launch.meetings.front(); ++issued_[m] == static_cast<int>(meetings_[m].size()))
            for (const Side& side : meetings_[m]) dirty.push_back(side.rank);
      }
      if (stops &&
          issued_[launch.meetings.front()] < static_cast<int>(meetings_[launch.meetings.front()].size()))
        return;
      ++rank.host;
    }
  }

  [[nodiscard]] bool may_begin(const Rank& rank, const Launch& launch, int number, Device device) const {
    if (!launch.issued) return false;
    for (int l = 0; l < schedule::lanes; ++l)
      if (rank.over[l] < launch.waits[l]) return false;
    if (launch.before_in_team >= 0 && !rank.launches[launch.before_in_team].over) return false;
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
        if (launch.begun || !may_begin(rank, launch, number, device)) continue;
        moved = launch.begun = true;
        while (rank.begun < static_cast<int>(rank.launches.size()) && rank.launches[rank.begun].begun)
          ++rank.begun;
        if (launch.meetings.empty()) finish(r, number, dirty);
        for (const int m : launch.meetings) arrive(m, dirty);
      }
    }
  }

  void arrive(int m, std::deque<int>& dirty) {
    if (++arrived_[m] < static_cast<int>(meetings_[m].size())) return;
    for (const Side& side : meetings_[m])
      if (--ranks_[side.rank].launches[side.launch].open == 0) finish(side.rank, side.launch, dirty);
  }

  void finish(int r, int number, std::deque<int>& dirty) {
    Rank& rank = ranks_[r];
    Launch& launch = rank.launches[number];
    launch.over = true;
    const auto lane = static_cast<std::size_t>(launch.lane);
    ++rank.head[lane];
    rank.over[lane] = launch.ends;
    while (rank.finished < static_cast<int>(rank.launches.size()) && rank.launches[rank.finished].over)
      ++rank.finished;
    dirty.push_back(r);
  }

  [[nodiscard]] std::string text(int r, const Launch& launch) const {
    return fmt::format("{} {}", name_of(launch.lane),
                       to_text(program_.ranks[r].actions[launch.actions.front()], program_));
  }

  const schedule::Program& program_;
  nccl::Colours colours_;
  std::vector<nccl::Team> teams_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Side>> meetings_;
  std::string mismatch_;
  std::vector<int> arrived_, issued_;
};

}  // namespace minitaw::comm::test
