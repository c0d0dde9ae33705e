#include "schedule/execute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace minitaw::schedule::detail {

std::string place(const Program& program, int rank, int action) {
  if (rank < 0) return "the program";
  if (action < 0) return fmt::format("rank {}", rank);
  Action shown = program.ranks[rank].actions[action];
  if (shown.communicator >= static_cast<int>(program.communicators.size())) shown.communicator = -1;
  return fmt::format("rank {}, tick {}, '{}'", rank, shown.tick, to_text(shown, program));
}

namespace {

/// One side of a message.
struct Side {
  std::uint64_t queue = 0;  ///< of sender, receiver and payload: where messages keep their order
  Place place;
};

/// Whether two sides mean the same part of the same thing, in the same precision.
bool same_cargo(const Action& a, const Action& b) {
  const auto total = [](const Action& x) { return x.slots[0].cls == SlotClass::accumulator; };
  return a.shard == b.shard && a.micro_batch == b.micro_batch && a.part == b.part && a.parts == b.parts &&
         total(a) == total(b);
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
  [[noreturn]] void fail(Rule rule, Place p, fmt::format_string<Args...> what, Args&&... args) const {
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

  /// Sends, or receives, queue by queue, in the order of issue.
  [[nodiscard]] std::vector<Side> sides(Kind kind) const {
    std::vector<Side> found;
    for (std::int32_t r = 0; r < static_cast<int>(program_.ranks.size()); ++r) {
      const auto& actions = program_.ranks[r].actions;
      for (std::int32_t i = 0; i < static_cast<int>(actions.size()); ++i) {
        const Action& a = actions[i];
        if (a.kind != kind) continue;
        const std::uint64_t from = kind == Kind::send ? r : a.peer, to = kind == Kind::send ? a.peer : r;
        found.push_back({from << 34 | to << 4 | index_of(a.payload), {r, i}});
      }
    }
    std::ranges::stable_sort(found, {}, &Side::queue);
    return found;
  }

  void pair_messages() {
    const std::vector<Side> sends = sides(Kind::send), receives = sides(Kind::recv);
    // If all earlier messages match, the first difference is a message with one side.
    for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
      if (i == sends.size() || (i < receives.size() && receives[i].queue < sends[i].queue))
        fail(Rule::matched_messages, receives[i].place, "no send of the peer is left for it");
      if (i == receives.size() || sends[i].queue < receives[i].queue)
        fail(Rule::matched_messages, sends[i].place, "no receive of the peer is left for it");
      const Place from = sends[i].place, to = receives[i].place;
      if (!same_cargo(at(from), at(to)))
        fail(Rule::matched_messages, to, "meets {}; expected the same message", text(from));
      result_.other[result_.number(from)] = to.action;
      result_.other[result_.number(to)] = from.action;
    }
  }

  /// The calls of each member of a communicator on a lane, in order: those at one place belong together.
  void match_collectives() {
    const std::size_t communicators = program_.communicators.size();
    std::vector<std::vector<std::pair<int, int>>> memberships(program_.ranks.size());  // communicator, member
    std::vector<std::array<std::vector<std::vector<std::int32_t>>, lanes>> calls(communicators);
    for (std::size_t c = 0; c < communicators; ++c) {
      const auto& members = program_.communicators[c].ranks;
      for (auto& on_lane : calls[c]) on_lane.resize(members.size());
      for (std::size_t m = 0; m < members.size(); ++m) memberships[members[m]].emplace_back(c, m);
    }
    for (std::size_t r = 0; r < memberships.size(); ++r) {
      const auto& actions = program_.ranks[r].actions;
      for (std::size_t i = 0; i < actions.size(); ++i) {
        if (!is_collective(actions[i].kind)) continue;
        const int c = actions[i].communicator;
        const int member = std::ranges::find(memberships[r], c, &std::pair<int, int>::first)->second;
        calls[c][index_of(actions[i].lane)][member].push_back(static_cast<std::int32_t>(i));
      }
    }
    for (std::size_t c = 0; c < communicators; ++c)
      for (const auto& on_lane : calls[c]) number_collectives(program_.communicators[c].ranks, on_lane);
  }

  void number_collectives(const std::vector<int>& members,
                          const std::vector<std::vector<std::int32_t>>& calls) {
    for (std::size_t m = 1; m < members.size(); ++m) compare(members[0], calls[0], members[m], calls[m]);
    for (std::size_t k = 0; k < calls[0].size(); ++k) {
      for (std::size_t m = 0; m < members.size(); ++m) {
        const Place call{members[m], calls[m][k]};
        result_.calls.push_back(call);
        result_.other[result_.number(call)] = result_.collectives();
      }
      result_.first_call.push_back(static_cast<std::int64_t>(result_.calls.size()));
    }
  }

  void compare(int first, const std::vector<std::int32_t>& expected, int rank,
               const std::vector<std::int32_t>& calls) const {
    const auto same = [&](std::int32_t a, std::int32_t b) {
      return same_call(at({first, a}), at({rank, b}));
    };
    const auto [e, c] = std::ranges::mismatch(expected, calls, same);
    if (e == expected.end() && c == calls.end()) return;
    if (c == calls.end()) fail(Rule::same_collectives, {first, *e}, "rank {} never joins it", rank);
    fail(Rule::same_collectives, {rank, *c}, "{}",
         e == expected.end() ? fmt::format("rank {} never joins it", first)
                             : fmt::format("expected the collective of {}", text({first, *e})));
  }

  static bool same_call(const Action& a, const Action& b) {
    return a.kind == b.kind && a.payload == b.payload && a.peer == b.peer && same_cargo(a, b);
  }

  const Program& program_;
  Matching result_;
};

}  // namespace

Matching match(const Program& program) { return Matcher(program).run(); }

namespace {

/// Where a lane of a rank stands: actions before `next` are finished.
struct LaneState {
  std::int32_t next = 0;
  bool started = false;
};

class Execution {
public:
  Execution(const Program& program, Listener& listener)
      : program_(program), matching_(match(program)), listener_(listener), sequences_(program.ranks.size()),
        states_(program.ranks.size()), started_(matching_.other.size()), arrived_(matching_.collectives()) {
    for (int r = 0; r < static_cast<int>(states_.size()); ++r) {
      const auto& actions = program.ranks[r].actions;
      for (int i = 0; i < static_cast<int>(actions.size()); ++i)
        sequences_[r][index_of(actions[i].lane)].push_back(i);
      for (int l = 0; l < lanes; ++l) ready_.push_back({r, l});
    }
  }

  void run() {
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
      begin_collective(matching_.other[matching_.number(p)]);
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

  void begin_collective(std::int32_t collective) {
    const std::span<const Place> calls = matching_.calls_of(collective);
    if (++arrived_[collective] < static_cast<int>(calls.size())) return;
    listener_.collective(calls);
    for (const Place call : calls) finish(call);
  }

  void finish(Place p) {
    LaneState& state = states_[p.rank][index_of(at(p).lane)];
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
    refuse(Rule::no_deadlock, program_, p.rank, p.action, "nothing can go on; {} lanes are stuck: {}", stuck,
           heads);
  }

  [[nodiscard]] std::string head(int rank, int lane) const {
    const LaneState& state = states_[rank][lane];
    return fmt::format("{} {}", place(program_, rank, place_of(rank, lane, state.next).action),
                       state.started ? "waits for the other side" : "waits for earlier actions of its rank");
  }

  static constexpr int shown_heads = 16;

  const Program& program_;
  const Matching matching_;
  Listener& listener_;
  std::vector<std::array<std::vector<std::int32_t>, lanes>> sequences_;  // actions of each lane of a rank
  std::vector<std::array<LaneState, lanes>> states_;
  std::vector<bool> started_;          // sends and receives, by number
  std::vector<std::int32_t> arrived_;  // members at each collective
  std::deque<Waiting> ready_;
};

}  // namespace

void execute(const Program& program, Listener& listener) { Execution(program, listener).run(); }

}  // namespace minitaw::schedule::detail
