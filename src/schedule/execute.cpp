// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/execute.hpp"
#include <algorithm>
#include <deque>
#include <fmt/ranges.h>
#include <map>
#include <tuple>

namespace minitaw::schedule::detail {
std::string place(const Program& program, int rank, int action) {
  if (rank < 0)
    return "the program";
  if (action < 0)
    return fmt::format("rank {}", rank);
  Action shown = program.ranks[rank].actions[action];
  if (shown.communicator >= static_cast<int>(program.communicators.size()))
    shown.communicator = -1;
  return fmt::format("rank {}, tick {}, '{}'", rank, shown.tick, to_text(shown, program));
}

namespace {
using enum Rule;

/// Returns whether two sides mean the same part of the same data, in the same precision.
bool same_content(const Action& a, const Action& b) {
  return a.shard == b.shard && a.micro_batch == b.micro_batch && a.part == b.part &&
         a.parts == b.parts && is_sum(a[Operand::buffer].cls) == is_sum(b[Operand::buffer].cls);
}

class Matcher {
public:
  explicit Matcher(const Program& program) : program_(program) {}

  Matching run() {
    number_actions();
    pair_messages();
    match_collectives();
    return std::move(result_);
  }

private:
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }

  template <class... Args>
  [[noreturn]] void fail(
      Rule rule, Place p, fmt::format_string<Args...> what, Args&&... args) const {
    refuse(rule, program_, p.rank, p.action, what, std::forward<Args>(args)...);
  }

  [[nodiscard]] std::string text(Place p) const { return place(program_, p.rank, p.action); }

  void number_actions() {
    std::int64_t count = 0;
    for (const RankProgram& rank : program_.ranks) {
      result_.base.push_back(count);
      count += static_cast<std::int64_t>(rank.actions.size());
    }
    result_.other.assign(count, -1);
  }

  /// Messages keep their order between a sender, a receiver and for a payload.
  void pair_messages() {
    struct Queue {
      std::vector<Place> sends, receives;
    };

    std::map<std::tuple<int, int, Payload>, Queue> queues;
    for (std::int32_t r = 0; r < static_cast<int>(program_.ranks.size()); ++r)
      for (std::int32_t i = 0; const Action& a : program_.ranks[r].actions) {
        if (a.kind == Kind::send)
          queues[{r, a.peer, a.payload}].sends.push_back({r, i});
        if (a.kind == Kind::recv)
          queues[{a.peer, r, a.payload}].receives.push_back({r, i});
        ++i;
      }
    for (const auto& [key, queue] : queues)
      for (std::size_t i = 0; i < std::max(queue.sends.size(), queue.receives.size()); ++i) {
        if (i == queue.sends.size())
          fail(matched_messages, queue.receives[i], "no send of the peer is left for it");
        if (i == queue.receives.size())
          fail(matched_messages, queue.sends[i], "no receive of the peer is left for it");
        const Place from = queue.sends[i], to = queue.receives[i];
        if (!same_content(at(from), at(to)))
          fail(matched_messages, to, "meets {}; expected the same message", text(from));
        result_.other[result_.number(from)] = to.action;
        result_.other[result_.number(to)] = from.action;
      }
  }

  /// The calls of each member of a communicator on a lane, in order: those at one place belong
  /// together.
  void match_collectives() {
    std::vector<std::map<std::pair<int, Lane>, std::vector<std::int32_t>>> calls(
        program_.ranks.size());
    for (std::size_t r = 0; r < calls.size(); ++r)
      for (std::int32_t i = 0; const Action& a : program_.ranks[r].actions) {
        if (is_collective(a.kind))
          calls[r][{a.communicator, a.lane}].push_back(i);
        ++i;
      }
    for (int c = 0; c < static_cast<int>(program_.communicators.size()); ++c)
      for (int l = 0; l < lanes; ++l) {
        const std::vector<int>& members = program_.communicators[c].ranks;
        std::vector<const std::vector<std::int32_t>*> of_member;
        for (const int rank : members) {
          of_member.push_back(&calls[rank][{c, static_cast<Lane>(l)}]);
          compare(members[0], *of_member[0], rank, *of_member.back());
        }
        for (std::size_t k = 0; k < of_member[0]->size(); ++k) {
          for (std::size_t m = 0; m < members.size(); ++m) {
            const Place call{members[m], (*of_member[m])[k]};
            result_.calls.push_back(call);
            result_.other[result_.number(call)] = result_.collectives();
          }
          result_.first_call.push_back(static_cast<std::int64_t>(result_.calls.size()));
        }
      }
  }

  void compare(int first,
      const std::vector<std::int32_t>& expected,
      int rank,
      const std::vector<std::int32_t>& calls) const {
    const auto same = [&](std::int32_t a, std::int32_t b) {
      return same_call(at({first, a}), at({rank, b}));
    };
    const auto [e, c] = std::ranges::mismatch(expected, calls, same);
    if (e == expected.end() && c == calls.end())
      return;
    if (c == calls.end())
      fail(same_collectives, {first, *e}, "rank {} never joins it", rank);
    fail(same_collectives,
        {rank, *c},
        "{}",
        e == expected.end() ? fmt::format("rank {} never joins it", first)
                            : fmt::format("expected the collective of {}", text({first, *e})));
  }

  static bool same_call(const Action& a, const Action& b) {
    return a.kind == b.kind && a.payload == b.payload && a.peer == b.peer && same_content(a, b);
  }

  const Program& program_;
  Matching result_;
};

/// Progress of a lane of a rank: actions before `next` are finished.
struct LaneState {
  std::vector<std::int32_t> actions;
  std::size_t next = 0;
  bool started = false;
  std::array<bool, lanes> holds{};  ///< lanes of the rank whose next action waits for this one

  [[nodiscard]] bool done() const { return next == actions.size(); }
};

class Execution {
public:
  Execution(const Program& program, Listener& listener)
      : program_(program),
        matching_(match(program)),
        listener_(listener),
        states_(program.ranks.size()),
        started_(matching_.other.size()),
        arrived_(matching_.collectives()) {
    for (int r = 0; r < static_cast<int>(states_.size()); ++r) {
      for (std::int32_t i = 0; const Action& a : program.ranks[r].actions)
        states_[r][index_of(a.lane)].actions.push_back(i++);
      for (int l = 0; l < lanes; ++l)
        ready_.emplace_back(r, l);
    }
  }

  void run() {
    while (!ready_.empty()) {
      const auto [rank, lane] = ready_.front();
      ready_.pop_front();
      start_next(rank, lane);
    }
    check_end();
  }

private:
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }

  /// Unless the lane's next action waits for another lane, whose progress then tries again.
  void start_next(int rank, int lane) {
    LaneState& state = states_[rank][lane];
    if (state.started || state.done())
      return;
    const Place next{rank, state.actions[state.next]};
    for (int l = 0; l < lanes; ++l)
      if (LaneState& other = states_[rank][l];
          static_cast<std::int32_t>(other.next) < at(next).waits[l]) {
        other.holds[lane] = true;
        return;
      }
    state.started = true;
    const Kind kind = at(next).kind;
    if (is_point_to_point(kind))
      return begin_message(next);
    if (is_collective(kind))
      return begin_collective(matching_.other[matching_.number(next)]);
    listener_.local(next);
    finish(next);
  }

  void begin_message(Place p) {
    const std::int64_t number = matching_.number(p);
    const Place other{at(p).peer, matching_.other[number]};
    started_[number] = true;
    if (!started_[matching_.number(other)])
      return;
    if (at(p).kind == Kind::send)
      listener_.message(p, other);
    else
      listener_.message(other, p);
    finish(p);
    finish(other);
  }

  void begin_collective(std::int32_t collective) {
    const std::span<const Place> calls = matching_.calls_of(collective);
    if (++arrived_[collective] < static_cast<int>(calls.size()))
      return;
    listener_.collective(calls);
    for (const Place call : calls)
      finish(call);
  }

  void finish(Place p) {
    LaneState& state = states_[p.rank][index_of(at(p).lane)];
    state.started = false;
    ++state.next;
    state.holds[index_of(at(p).lane)] = true;
    for (int l = 0; l < lanes; ++l)
      if (std::exchange(state.holds[l], false))
        ready_.emplace_back(p.rank, l);
  }

  void check_end() const {
    std::vector<std::string> heads;
    Place first;
    for (int r = 0; r < static_cast<int>(states_.size()); ++r)
      for (const LaneState& state : states_[r]) {
        if (state.done())
          continue;
        const Place p{r, state.actions[state.next]};
        if (heads.empty())
          first = p;
        heads.push_back(place(program_, r, p.action) +
                        (state.started ? " waits for the other side"
                                       : " waits for earlier actions of its rank"));
      }
    if (heads.empty())
      return;
    constexpr std::size_t shown = 16;
    refuse(no_deadlock,
        program_,
        first.rank,
        first.action,
        "nothing can go on; {} lanes are stuck, for example: {}",
        heads.size(),
        fmt::join(heads.begin(), heads.begin() + std::min(shown, heads.size()), "; "));
  }

  const Program& program_;
  const Matching matching_;
  Listener& listener_;
  std::vector<std::array<LaneState, lanes>> states_;  ///< by rank
  std::vector<bool> started_;                         ///< sends and receives, by number
  std::vector<std::int32_t> arrived_;                 ///< members at each collective
  std::deque<std::pair<int, int>> ready_;             ///< ranks and lanes to try
};
}  // namespace

Matching match(const Program& program) {
  return Matcher(program).run();
}

void execute(const Program& program, Listener& listener) {
  Execution(program, listener).run();
}
}  // namespace minitaw::schedule::detail
