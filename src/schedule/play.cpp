#include "schedule/play.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace minitaw::schedule::detail {
namespace {

/// Where a lane of a rank stands: actions before `next` are finished.
struct LaneState {
  std::int32_t next = 0;
  bool started = false;
};

class Play {
public:
  Play(const Program& program, const std::vector<LaneSequences>& sequences, const Matching& matching,
       Listener& listener)
      : program_(program), sequences_(sequences), matching_(matching), listener_(listener),
        states_(program.ranks.size()), started_(matching.other.size()), arrived_(matching.instances.size()) {}

  void run() {
    for (int r = 0; r < static_cast<int>(states_.size()); ++r)
      for (int l = 0; l < lanes; ++l) ready_.push_back({r, l});
    while (!ready_.empty()) {
      const auto [rank, lane] = ready_.front();
      ready_.pop_front();
      start(rank, lane);
    }
    check_end();
  }

private:
  struct Waiting {
    int rank, lane;
  };

  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }
  [[nodiscard]] Place place_of(int rank, int lane, int position) const {
    return {rank, sequences_[rank][lane][position]};
  }
  [[nodiscard]] bool done(int rank, int lane) const {
    return states_[rank][lane].next == static_cast<int>(sequences_[rank][lane].size());
  }

  [[nodiscard]] bool may_start(int rank, int lane) const {
    const LaneState& state = states_[rank][lane];
    if (state.started || done(rank, lane)) return false;
    const Action& next = at(place_of(rank, lane, state.next));
    for (int l = 0; l < lanes; ++l)
      if (states_[rank][l].next < next.waits[l]) return false;
    return true;
  }

  void start(int rank, int lane) {
    if (!may_start(rank, lane)) return;
    states_[rank][lane].started = true;
    begin_action(place_of(rank, lane, states_[rank][lane].next));
  }

  void begin_action(Place p) {
    const Action& a = at(p);
    if (is_point_to_point(a.kind)) {
      begin_message(p, a);
    } else if (is_collective(a.kind)) {
      begin_collective(a, matching_.other[matching_.number(p)]);
    } else {
      listener_.local(p);
      finish(p);
    }
  }

  void begin_message(Place p, const Action& a) {
    const std::int64_t number = matching_.number(p);
    const Place other{a.peer, matching_.other[number]};
    started_[number] = true;
    if (!started_[matching_.number(other)]) return;
    if (a.kind == Kind::send) listener_.message(p, other);
    else listener_.message(other, p);
    finish(p);
    finish(other);
  }

  void begin_collective(const Action& a, std::int32_t instance) {
    const auto& members = program_.communicators[a.communicator].ranks;
    if (++arrived_[instance] < static_cast<int>(members.size())) return;
    const Channel& channel = matching_.channels[matching_.instances[instance]];
    calls_.clear();
    for (std::size_t m = 0; m < members.size(); ++m)
      calls_.push_back({members[m], channel.calls[m][instance - channel.first]});
    listener_.collective(calls_);
    for (const Place call : calls_) finish(call);
  }

  void finish(Place p) {
    LaneState& state = states_[p.rank][static_cast<std::size_t>(at(p).lane)];
    state.started = false;
    ++state.next;
    for (int l = 0; l < lanes; ++l)
      if (may_start(p.rank, l)) ready_.push_back({p.rank, l});
  }

  void check_end() const {
    std::string heads;
    Waiting first{-1, -1};
    int stuck = 0;
    for (int r = 0; r < static_cast<int>(states_.size()); ++r)
      for (int l = 0; l < lanes; ++l) {
        if (done(r, l)) continue;
        if (stuck++ == 0) first = {r, l};
        if (stuck <= shown_heads) heads += fmt::format("{}{}", stuck > 1 ? "; " : "", head(r, l));
      }
    if (stuck == 0) return;
    if (stuck > shown_heads) heads += fmt::format("; and {} more lanes", stuck - shown_heads);
    const Place p = place_of(first.rank, first.lane, states_[first.rank][first.lane].next);
    refuse(Rule::no_deadlock, program_, p.rank, p.action,
           fmt::format("nothing can go on; {} lanes are stuck: {}", stuck, heads));
  }

  [[nodiscard]] std::string head(int rank, int lane) const {
    const LaneState& state = states_[rank][lane];
    return fmt::format("{} {}", place(program_, rank, place_of(rank, lane, state.next).action),
                       state.started ? "waits for the other side" : "waits for earlier actions of its rank");
  }

  static constexpr int shown_heads = 16;

  const Program& program_;
  const std::vector<LaneSequences>& sequences_;
  const Matching& matching_;
  Listener& listener_;
  std::vector<std::array<LaneState, lanes>> states_;
  std::vector<bool> started_;          // sends and receives, by number
  std::vector<std::int32_t> arrived_;  // members at each collective
  std::vector<Place> calls_;
  std::deque<Waiting> ready_;
};

}  // namespace

void play(const Program& program, const std::vector<LaneSequences>& sequences, const Matching& matching,
          Listener& listener) {
  Play(program, sequences, matching, listener).run();
}

}  // namespace minitaw::schedule::detail
