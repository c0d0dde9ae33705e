#include <fmt/format.h>

#include <algorithm>

#include "schedule/validate_detail.hpp"

namespace minitaw::schedule::detail {
namespace {

void merge(Clock& into, const Clock& other) {
  for (int l = 0; l < lanes; ++l) into[l] = std::max(into[l], other[l]);
}

/// Plays the lanes of one rank with transfers that finish at once and notes what is certain at every start.
class LocalPlay {
public:
  LocalPlay(const Program& program, int rank, const LaneSequences& sequences)
      : program_(program), rank_(rank), actions_(program.ranks[rank].actions), sequences_(sequences) {
    order_.start.resize(actions_.size());
    order_.position.resize(actions_.size());
    for (int l = 0; l < lanes; ++l) finish_[l].reserve(sequences[l].size());
  }

  LocalOrder run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int l = 0; l < lanes; ++l)
        while (start_next(l)) moved = true;
    }
    for (int l = 0; l < lanes; ++l)
      if (finished(l) < static_cast<int>(sequences_[l].size()))
        refuse(Rule::no_deadlock, program_, rank_, sequences_[l][finished(l)],
               "can never start: its lane and the lanes it waits on wait for one another");
    return std::move(order_);
  }

private:
  [[nodiscard]] int finished(int lane) const { return static_cast<int>(finish_[lane].size()); }

  bool start_next(int lane) {
    const int position = finished(lane);
    if (position == static_cast<int>(sequences_[lane].size())) return false;
    const int action = sequences_[lane][position];
    for (int l = 0; l < lanes; ++l)
      if (actions_[action].waits[l] > finished(l)) return false;
    note(lane, action, position);
    return true;
  }

  void note(int lane, int action, int position) {
    Clock clock{};
    if (position > 0) clock = finish_[lane].back();
    for (int l = 0; l < lanes; ++l)
      if (const int count = actions_[action].waits[l]; count > 0) merge(clock, finish_[l][count - 1]);
    order_.start[action] = clock;
    order_.position[action] = position;
    clock[lane] = position + 1;
    finish_[lane].push_back(clock);
  }

  const Program& program_;
  int rank_;
  const std::vector<Action>& actions_;
  const LaneSequences& sequences_;
  std::array<std::vector<Clock>, lanes>
      finish_;  // what is certain once the action at this position is finished
  LocalOrder order_;
};

}  // namespace

std::vector<LaneSequences> lane_sequences(const Program& program) {
  std::vector<LaneSequences> result(program.ranks.size());
  for (std::size_t r = 0; r < result.size(); ++r) {
    const auto& actions = program.ranks[r].actions;
    for (std::size_t i = 0; i < actions.size(); ++i)
      result[r][static_cast<std::size_t>(actions[i].lane)].push_back(static_cast<int>(i));
  }
  return result;
}

LocalOrder local_order(const Program& program, int rank, const LaneSequences& sequences) {
  return LocalPlay(program, rank, sequences).run();
}

void check_join(const Program& program, int rank, const LocalOrder& order, const LaneSequences& sequences) {
  const auto& actions = program.ranks[rank].actions;
  const int last = static_cast<int>(actions.size()) - 1;
  for (int i = 0; i < last; ++i)
    if (actions[i].kind == Kind::join)
      refuse(Rule::all_waited, program, rank, i, "is not the rank's last action");
  if (last < 0 || actions[last].kind != Kind::join)
    refuse(Rule::all_waited, program, rank, last, "the rank's last action must be join");
  Clock clock = order.start[last];
  clock[static_cast<std::size_t>(actions[last].lane)] = order.position[last] + 1;
  for (int l = 0; l < lanes; ++l)
    if (const int count = static_cast<int>(sequences[l].size()); clock[l] < count)
      refuse(Rule::all_waited, program, rank, sequences[l][clock[l]],
             fmt::format("join does not wait for it; expected a wait for {} actions of lane {}", count,
                         name_of(static_cast<Lane>(l))));
}

}  // namespace minitaw::schedule::detail
