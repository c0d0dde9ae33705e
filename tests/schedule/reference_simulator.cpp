// SPDX-License-Identifier: BSD-3-Clause
// The reference simulator: executes a program on the numbers of reference_step.hpp, its lanes in
// any order that waits allow.
#include <map>
#include <random>
#include <utility>
#include "schedule/reference_step.hpp"
#include "schedule/whole_job.hpp"

namespace minitaw::schedule {
namespace {
using namespace reference;

struct Wrong {
  std::string what;
};

/// An action under way.
struct Running {
  int action = -1;
  Buffers held;  // its slots as it found them
  Buffers left;  // and as it left them until it ends
};

struct LaneState {
  std::vector<int> actions;
  double eagerness = 0;          // some lanes hurry, some crawl
  int next = 0;                  // action to start
  std::vector<Running> running;  // in the order in which they started
  std::vector<bool> ended;       // by action of the lane
  int finished = 0;              // actions in front of the first one that has not ended

  [[nodiscard]] bool exhausted() const { return next == static_cast<int>(actions.size()); }
};

class Simulator {
public:
  /// Executes all replicas.
  Simulator(const Program& program, std::uint64_t seed)
      : p_(whole_job(program)),
        random_(seed),
        ranks_(p_.ranks.size()) {
    for (int r = 0; r < count(); ++r)
      set_up(r);
    match_transfers();
  }

  void run() {
    while (step()) {}
    for (const Rank& rank : ranks_)
      for (const LaneState& lane : rank.lanes)
        if (!lane.exhausted() || !lane.running.empty())
          throw Wrong{"stuck"};
    compare();
  }

private:
  struct Rank {
    std::map<std::pair<SlotClass, int>, Buffer> slots;
    std::array<LaneState, schedule::lanes> lanes;
  };

  struct Event {
    int rank, lane;
    int member;  // of the running actions, which ends; -1: the next action starts
  };

  using Sides = std::vector<std::pair<int, int>>;  ///< ranks and actions

  [[nodiscard]] int count() const { return static_cast<int>(ranks_.size()); }

  [[nodiscard]] const Action& at(int r, int i) const { return p_.ranks[r].actions[i]; }

  Buffer& slot(int r, Slot s) { return ranks_[r].slots[{s.cls, s.index}]; }

  Buffer junk(int size) {
    Buffer buffer(size);
    for (Number& n : buffer)
      n = random_();
    return buffer;
  }

  void set_up(int r) {
    Rank& rank = ranks_[r];
    for (int c = 0; c < slot_classes; ++c)
      for (int i = 0; i < p_.ranks[r].slots[c]; ++i) {
        const auto cls = static_cast<SlotClass>(c);
        Buffer& buffer = rank.slots[{cls, i}] = junk(width(p_, cls));
        if (cls == SlotClass::embeddings)
          put(buffer,
              embeddings_run(p_, r),
              within(first_embeddings(p_.embeddings_parts), embeddings_run(p_, r)));
        if (cls == SlotClass::owned)
          put(buffer,
              owned_run(p_, r),
              within(first_weights(p_.ranks[r].owned_shards[i], p_.shard_parts), owned_run(p_, r)));
      }
    std::uniform_real_distribution<double> draw(0.0, 1.0);
    for (int l = 0; l < lanes; ++l) {
      LaneState& lane = rank.lanes[l];
      lane.actions = actions_of(p_.ranks[r], static_cast<Lane>(l));
      lane.ended.resize(lane.actions.size());
      const double d = draw(random_);
      lane.eagerness = d * d * d + 1e-4;
    }
  }

  /// One event out of those that can happen; false if there is none.
  bool step() {
    std::vector<Event> events;
    std::vector<double> weights;
    for (int r = 0; r < count(); ++r)
      for (int l = 0; l < lanes; ++l) {
        collect(r, l, events);
        weights.resize(events.size(), ranks_[r].lanes[l].eagerness);
      }
    if (events.empty())
      return false;
    const Event e =
        events[std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(random_)];
    if (e.member < 0)
      start(e.rank, e.lane);
    else
      end(e);
    return true;
  }

  void collect(int r, int l, std::vector<Event>& events) {
    const LaneState& s = ranks_[r].lanes[l];
    if (!s.exhausted() && may_start(r, s.actions[s.next]))
      events.push_back({r, l, -1});
    for (int k = 0; k < static_cast<int>(s.running.size()); ++k)
      if (can_end(r, s.running[k].action))
        events.push_back({r, l, k});
  }

  /// A lane has one action at a time, but any number of messages of one direction, unless two would
  /// share a slot.
  bool may_start(int r, int i) const {
    const Action& a = at(r, i);
    for (const Running& running : ranks_[r].lanes[static_cast<std::size_t>(a.lane)].running)
      if (const Action& other = at(r, running.action);
          !is_point_to_point(a.kind) || other.kind != a.kind ||
          (a.kind == Kind::recv && other.slots[0] == a.slots[0]))
        return false;
    for (int l = 0; l < lanes; ++l)
      if (static_cast<Lane>(l) != a.lane && ranks_[r].lanes[l].finished < a.waits[l])
        return false;
    return true;
  }

  void start(int r, int l) {
    LaneState& s = ranks_[r].lanes[l];
    const int i = s.actions[s.next++];
    const Action& a = at(r, i);
    if (a.kind == Kind::join)
      check_join(r);
    Running& running = s.running.emplace_back();
    running.action = i;
    for (std::size_t k = 0; k < most_operands; ++k)
      if (a.slots[k].valid())
        running.held[k] = slot(r, a.slots[k]);
    for (const Access& access : accesses(a, r))
      for (std::size_t k = 0; k < most_operands; ++k)
        if (access.write && a.slots[k] == access.slot)
          put(slot(r, access.slot), touched(p_, a, k), junk(touched(p_, a, k).size()));
    for (std::size_t k = 0; k < most_operands; ++k)
      if (a.slots[k].valid())
        running.left[k] = slot(r, a.slots[k]);
  }

  void check_join(int r) const {
    int finished = 0;
    for (const LaneState& lane : ranks_[r].lanes)
      finished += lane.finished;
    if (finished + 1 != static_cast<int>(p_.ranks[r].actions.size()))
      throw Wrong{"joins too early"};
  }

  /// Sides of a transfer belong together by their number in the queue of sender, receiver, payload,
  /// or communicator, lane.
  void match_transfers() {
    std::map<std::array<int, 5>, int> taken;     // by queue and side
    std::map<std::array<int, 4>, Sides> places;  // by queue and number
    for (int r = 0; r < count(); ++r)
      for (int i = 0; const Action& a : p_.ranks[r].actions) {
        const bool all = is_collective(a.kind), sends = a.kind == Kind::send;
        const int from = all     ? -1
                         : sends ? r
                                 : a.peer,
                  to = all     ? a.communicator
                       : sends ? a.peer
                               : r;
        const int what = static_cast<int>(all ? index_of(a.lane) : index_of(a.payload));
        if (is_communication(a.kind))
          places[{from, to, what, taken[{from, to, what, all ? r : 0, sends ? 1 : 0}]++}]
              .emplace_back(r, i);
        ++i;
      }
    for (const auto& [place, sides] : places)
      for (const auto& side : sides)
        sides_[side] = sides;
  }

  /// A transfer can end once all of its sides are under way.
  bool can_end(int r, int i) {
    const Action& a = at(r, i);
    if (!is_communication(a.kind))
      return true;
    const std::size_t wanted =
        is_collective(a.kind) ? p_.communicators[a.communicator].ranks.size() : 2;
    const Sides& sides = sides_[{r, i}];
    return sides.size() == wanted && std::ranges::all_of(sides, [&](const auto& side) {
      const auto& running =
          ranks_[side.first].lanes[index_of(at(side.first, side.second).lane)].running;
      return std::ranges::find(running, side.second, &Running::action) != running.end();
    });
  }

  Running take(int r, int i) {
    const auto l = static_cast<std::size_t>(at(r, i).lane);
    LaneState& s = ranks_[r].lanes[l];
    const auto running = std::ranges::find(s.running, i, &Running::action);
    if (running == s.running.end())
      throw Wrong{"not running"};
    const Running taken = *running;
    s.running.erase(running);
    s.ended[static_cast<std::size_t>(std::ranges::lower_bound(s.actions, i) - s.actions.begin())] =
        true;
    s.finished = static_cast<int>(std::ranges::find(s.ended, false) - s.ended.begin());
    check_untouched(r, taken);
    return taken;
  }

  /// Inputs must be as they were found, outputs as they were left: no other action worked on them.
  void check_untouched(int r, const Running& running) {
    const Action& a = at(r, running.action);
    for (std::size_t k = 0; k < most_operands; ++k) {
      if (!a.slots[k].valid())
        continue;
      const Run run = touched(p_, a, k);
      if (within(slot(r, a.slots[k]), run) != within(running.left[k], run))
        throw Wrong{"changed under an action"};
    }
  }

  void end(const Event& e) {
    const int i = ranks_[e.rank].lanes[e.lane].running[e.member].action;
    const Action& a = at(e.rank, i);
    if (!is_communication(a.kind))
      return compute(p_, e.rank, a, take(e.rank, i).held, [&](std::size_t k) -> Buffer& {
        return slot(e.rank, a.slots[k]);
      });
    const Sides sides = sides_[{e.rank, i}];
    for (const auto& [r, k] : sides)
      if (at(r, k).shard != a.shard || at(r, k).parts != a.parts)
        throw Wrong{"sizes differ"};
    if (is_collective(a.kind))
      return collective(sides);
    const auto& [from, to] = at(sides[0].first, sides[0].second).kind == Kind::send
                                 ? std::pair(sides[0], sides[1])
                                 : std::pair(sides[1], sides[0]);
    const Running sent = take(from.first, from.second);
    take(to.first, to.second);
    put_moved(to, within(sent.held[0], touched(p_, at(from.first, from.second), 0)));
  }

  /// Into what a side of a transfer touches.
  void put_moved(const std::pair<int, int>& side, const Buffer& content) {
    const Action& a = at(side.first, side.second);
    put(slot(side.first, a.slots[0]), touched(p_, a, 0), content);
  }

  void collective(const Sides& sides) {
    const Action first = at(sides[0].first, sides[0].second);
    std::map<int, Buffer> in;
    for (const auto& [r, i] : sides) {
      const Action& a = at(r, i);
      if (a.kind != first.kind || a.peer != first.peer || a.payload != first.payload)
        throw Wrong{"calls differ"};
      in[r] = within(take(r, i).held[0], touched(p_, a, 0));
    }
    Buffer sum(in.begin()->second.size());
    for (const auto& [r, buffer] : in)
      for (std::size_t k = 0; k < sum.size(); ++k)
        sum[k] += buffer[k];
    for (const auto& side : sides)
      put_moved(side, result(first, side.first, in, sum));
  }

  /// What a member has after a collective.
  Buffer result(const Action& a, int r, const std::map<int, Buffer>& in, const Buffer& sum) {
    const std::vector<int>& members = p_.communicators[a.communicator].ranks;
    const std::size_t each = std::max<std::size_t>(sum.size() / members.size(), 1);
    const auto member = [&](std::size_t k) {
      return members[std::min(k / each, members.size() - 1)];
    };
    Buffer out = sum;
    switch (a.kind) {
    case Kind::broadcast: return in.at(a.peer);
    case Kind::reduce: return r == a.peer ? sum : in.at(r);
    case Kind::all_reduce: return sum;
    case Kind::all_gather:
      for (std::size_t k = 0; k < out.size(); ++k)
        out[k] = in.at(member(k))[k];
      return out;
    default:
      for (std::size_t k = 0; k < out.size(); ++k)
        out[k] = member(k) == r ? sum[k] : random_();
      return out;
    }
  }

  void compare() {
    const Weights right = expected(p_);
    for (int r = 0; r < count(); ++r) {
      for (int h = 0; h < static_cast<int>(p_.ranks[r].owned_shards.size()); ++h)
        if (within(ranks_[r].slots[{SlotClass::owned, h}], owned_run(p_, r)) !=
            within(right.shards[p_.ranks[r].owned_shards[h]], owned_run(p_, r)))
          throw Wrong{"wrong weights"};
      for (int e = 0; e < p_.ranks[r].slots[static_cast<std::size_t>(SlotClass::embeddings)]; ++e)
        if (within(ranks_[r].slots[{SlotClass::embeddings, e}], embeddings_run(p_, r)) !=
            within(right.embeddings, embeddings_run(p_, r)))
          throw Wrong{"wrong embeddings"};
    }
  }

  const Program p_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, Sides> sides_;  ///< of each side of a transfer
};
}  // namespace

/// Runs a program on made-up numbers, one event at a time in an order drawn from `seed`, with
/// everything in flight that the program allows: messages of one direction that follow each other
/// in a lane are under way together. An action takes hold of its inputs when it starts, leaves junk
/// in its outputs until it ends, and must find its inputs unchanged then. Returns what went wrong:
/// a stop before the end, a buffer changed under an action, or weights that differ from those that
/// plain arithmetic gives. It shares nothing with the validator but the meaning of an action.
std::string simulate_on_numbers(const Program& program, std::uint64_t seed) {
  try {
    Simulator(program, seed).run();
  } catch (const Wrong& wrong) {
    return wrong.what;
  }
  return "";
}
}  // namespace minitaw::schedule
