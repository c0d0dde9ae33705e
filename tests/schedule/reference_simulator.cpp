// SPDX-License-Identifier: BSD-3-Clause
// The reference simulator: executes a program on the numbers of reference_step.hpp, its lanes in
// any order that waits allow.
#include <map>
#include <random>
#include "schedule/reference_step.hpp"
#include "schedule/whole_job.hpp"

namespace minitaw::schedule {
namespace reference {
namespace {
struct Wrong {
  std::string what;
};

class Simulator {
  using enum Kind;

public:
  /// Executes all replicas.
  Simulator(const Program& program, std::uint64_t seed)
      : p_(whole_job(program)),
        random_(seed),
        ranks_(p_.ranks.size()) {
    const std::vector<Buffer> first = first_weights(p_);
    for (int r = 0; r < count(); ++r) {
      for (int c = 0; c < slot_classes; ++c)
        for (int i = 0; i < p_.ranks[r].slots[c]; ++i) {
          const auto cls = static_cast<SlotClass>(c);
          ranks_[r].slots[{cls, i}] = junk(width(p_, cls));
        }
      for_each_weights(r, [&](Buffer& buffer, int number, Run run) {
        put(buffer, run, within(first[number], run));
      });
      for (int l = 0; l < schedule::lanes; ++l) {
        ranks_[r].lanes[l].eagerness = draw() + 1e-3;
        ranks_[r].lanes[l].actions = actions_of(p_.ranks[r], static_cast<Lane>(l));
      }
    }
    match_transfers();
  }

  void run() {
    while (step()) {}
    const std::vector<Buffer> right = last_weights(p_);
    for (int r = 0; r < count(); ++r) {
      for (const LaneState& lane : ranks_[r].lanes)
        if (lane.finished() < std::ssize(lane.actions))
          throw Wrong{"stuck"};
      for_each_weights(r, [&](const Buffer& buffer, int number, Run run) {
        if (within(buffer, run) != within(right[number], run))
          throw Wrong{number < p_.shards ? "wrong weights" : "wrong embeddings"};
      });
    }
  }

private:
  /// An action under way.
  struct Running {
    int place;           ///< among those of the lane
    Buffers held, left;  ///< its slots as it found them, and as it left them until it ends
  };

  struct LaneState {
    std::vector<int> actions;
    double eagerness = 0;
    int next = 0;                  ///< action to start
    std::vector<Running> running;  ///< in the order in which they started

    /// Actions in front of the first one that has not ended.
    int finished() const { return running.empty() ? next : running.front().place; }
  };

  struct Rank {
    std::map<std::pair<SlotClass, int>, Buffer> slots;
    std::array<LaneState, schedule::lanes> lanes;
  };

  struct Event {
    double urge;
    int rank, lane;
    int member;  ///< of the running actions, which ends; -1: the next action starts
  };

  struct Side {
    int rank, action;

    auto operator<=>(const Side&) const = default;
  };

  using Sides = std::vector<Side>;

  int count() const { return static_cast<int>(ranks_.size()); }

  const Action& at(Side side) const { return p_.ranks[side.rank].actions[side.action]; }

  Buffer& slot(int r, Slot s) { return ranks_[r].slots[{s.cls, s.index}]; }

  LaneState& lane_of(Side side) { return ranks_[side.rank].lanes[index_of(at(side).lane)]; }

  /// Often small, so that some lanes hurry and some crawl.
  double draw() {
    const double even = std::uniform_real_distribution<double>()(random_);
    return even * even * even;
  }

  Buffer junk(int size) {
    Buffer buffer(size);
    std::ranges::generate(buffer, std::ref(random_));
    return buffer;
  }

  /// Calls visit(buffer, number, run) for what a rank keeps of its shards and of the embeddings,
  /// whose number is that behind the last shard.
  void for_each_weights(int r, const auto& visit) {
    const RankProgram& rank = p_.ranks[r];
    for (int h = 0; h < std::ssize(rank.owned_shards); ++h)
      visit(slot(r, {SlotClass::owned, static_cast<std::int16_t>(h)}),
          rank.owned_shards[h],
          kept_run(p_, r, SlotClass::owned));
    if (rank.has_embeddings())
      visit(slot(r, {SlotClass::embeddings, 0}), p_.shards, kept_run(p_, r, SlotClass::embeddings));
  }

  /// Sides of a transfer belong together by their number in the queue of sender, receiver, payload,
  /// or communicator, lane.
  void match_transfers() {
    using Queue = std::array<int, 3>;
    std::map<std::pair<Queue, int>, int> taken;      // by queue and rank
    std::map<std::pair<Queue, int>, Sides> matched;  // by queue and number
    for (int r = 0; r < count(); ++r)
      for (int i = 0; i < std::ssize(p_.ranks[r].actions); ++i) {
        const Action& a = at({r, i});
        if (!is_communication(a.kind))
          continue;
        Queue queue = {r, a.peer, static_cast<int>(a.payload)};
        if (a.kind == recv)
          std::swap(queue[0], queue[1]);
        if (is_collective(a.kind))
          queue = {-1, a.communicator, static_cast<int>(a.lane)};
        matched[{queue, taken[{queue, r}]++}].push_back({r, i});
      }
    for (const auto& [queue, sides] : matched)
      for (const Side side : sides)
        sides_[side] = sides;
  }

  /// One event out of those that can happen; false if there is none.
  bool step() {
    std::vector<Event> events;
    for (int r = 0; r < count(); ++r)
      for (int l = 0; l < schedule::lanes; ++l) {
        const LaneState& lane = ranks_[r].lanes[l];
        if (lane.next < std::ssize(lane.actions) && may_start({r, lane.actions[lane.next]}))
          events.push_back({lane.eagerness * draw(), r, l, -1});
        for (int k = 0; k < std::ssize(lane.running); ++k)
          if (can_end({r, lane.actions[lane.running[k].place]}))
            events.push_back({lane.eagerness * draw(), r, l, k});
      }
    if (events.empty())
      return false;
    const auto [urge, r, l, member] = *std::ranges::max_element(events, {}, &Event::urge);
    LaneState& lane = ranks_[r].lanes[l];
    if (member < 0)
      start(r, lane);
    else
      end({r, lane.actions[lane.running[member].place]});
    return true;
  }

  /// A lane has one action at a time, but any number of messages of one direction, unless two would
  /// share a slot.
  bool may_start(Side side) {
    const Action& a = at(side);
    const LaneState& own = lane_of(side);
    for (const Running& running : own.running)
      if (const Action& other = at({side.rank, own.actions[running.place]});
          !is_point_to_point(a.kind) || other.kind != a.kind ||
          (a.kind == recv && other.slots[0] == a.slots[0]))
        return false;
    for (int l = 0; l < schedule::lanes; ++l)
      if (l != static_cast<int>(a.lane) && ranks_[side.rank].lanes[l].finished() < a.waits[l])
        return false;
    return true;
  }

  void start(int r, LaneState& lane) {
    const Action& a = at({r, lane.actions[lane.next]});
    int finished = 0;
    for (const LaneState& each : ranks_[r].lanes)
      finished += each.finished();
    if (a.kind == join && finished + 1 != std::ssize(p_.ranks[r].actions))
      throw Wrong{"joins too early"};
    Running& running = lane.running.emplace_back(lane.next++);
    const std::vector<std::size_t> operands = operands_in(a);
    for (const std::size_t k : operands)
      running.held[k] = slot(r, a.slots[k]);
    for (const Access& access : accesses(a, r))
      for (const std::size_t k : operands)
        if (const Run run = touched(p_, a, k); access.write && a.slots[k] == access.slot)
          put(slot(r, access.slot), run, junk(run.end - run.begin));
    for (const std::size_t k : operands)
      running.left[k] = slot(r, a.slots[k]);
  }

  static std::vector<std::size_t> operands_in(const Action& a) {
    std::vector<std::size_t> valid;
    for (std::size_t k = 0; k < most_operands; ++k)
      if (a.slots[k].valid())
        valid.push_back(k);
    return valid;
  }

  auto running(Side side) {
    LaneState& lane = lane_of(side);
    return std::ranges::find_if(lane.running,
        [&](const Running& running) { return lane.actions[running.place] == side.action; });
  }

  /// A transfer can end once all of its sides are under way.
  bool can_end(Side side) {
    const Action& a = at(side);
    if (!is_communication(a.kind))
      return true;
    const std::size_t wanted =
        is_collective(a.kind) ? p_.communicators[a.communicator].ranks.size() : 2;
    const Sides& sides = sides_[side];
    return sides.size() == wanted && std::ranges::all_of(sides, [&](Side other) {
      return running(other) != lane_of(other).running.end();
    });
  }

  /// Ends an action and returns what it found. Inputs must be as they were found, outputs as they
  /// were left: no other action worked on them.
  Buffers take(Side side) {
    const Action& a = at(side);
    const auto found = running(side);
    if (found == lane_of(side).running.end())
      throw Wrong{"not running"};
    const Running taken = *found;
    lane_of(side).running.erase(found);
    for (const std::size_t k : operands_in(a))
      if (const Run run = touched(p_, a, k);
          within(slot(side.rank, a.slots[k]), run) != within(taken.left[k], run))
        throw Wrong{"changed under an action"};
    return taken.held;
  }

  void end(Side side) {
    const Action& a = at(side);
    if (!is_communication(a.kind))
      return compute(p_, side.rank, a, take(side), [&](std::size_t k) -> Buffer& {
        return slot(side.rank, a.slots[k]);
      });
    const Sides sides = sides_[side];
    std::map<int, Buffer> in;  // by rank
    for (const Side each : sides) {
      const Action& other = at(each);
      if (other.shard != a.shard || other.parts != a.parts)
        throw Wrong{"sizes differ"};
      if (is_collective(a.kind) &&
          (other.kind != a.kind || other.peer != a.peer || other.payload != a.payload))
        throw Wrong{"calls differ"};
      in[each.rank] = within(take(each)[0], touched(p_, other, 0));
    }
    for (const Side each : sides)
      if (const Action& other = at(each); other.kind != send)
        put(slot(each.rank, other.slots[0]), touched(p_, other, 0), received(other, each.rank, in));
  }

  /// What a side has after a transfer.
  Buffer received(const Action& a, int r, const std::map<int, Buffer>& in) {
    if (a.kind == recv || a.kind == broadcast)
      return in.at(a.peer);
    Buffer sum(in.at(r).size());
    for (const auto& [rank, buffer] : in)
      for (std::size_t k = 0; k < sum.size(); ++k)
        sum[k] += buffer[k];
    const std::vector<int>& members = p_.communicators[a.communicator].ranks;
    const std::size_t each = std::max<std::size_t>(sum.size() / members.size(), 1);
    const auto member = [&](std::size_t k) {
      return members[std::min(k / each, members.size() - 1)];
    };
    if (a.kind == reduce && r != a.peer)
      return in.at(r);
    if (a.kind == all_gather)
      for (std::size_t k = 0; k < sum.size(); ++k)
        sum[k] = in.at(member(k))[k];
    if (a.kind == reduce_scatter)
      for (std::size_t k = 0; k < sum.size(); ++k)
        if (member(k) != r)
          sum[k] = random_();
    return sum;
  }

  const Program p_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<Side, Sides> sides_;  ///< of each side of a transfer
};
}  // namespace
}  // namespace reference

/// Runs a program on made-up numbers, one event at a time in an order drawn from `seed`, with
/// everything in flight that the program allows: messages of one direction that follow each other
/// in a lane are under way together. An action takes hold of its inputs when it starts, leaves junk
/// in its outputs until it ends, and must find its inputs unchanged then. Returns what went wrong:
/// a stop before the end, a buffer changed under an action, or weights that differ from those that
/// plain arithmetic gives. It shares nothing with the validator but the meaning of an action.
std::string simulate_on_numbers(const Program& program, std::uint64_t seed) {
  try {
    reference::Simulator(program, seed).run();
  } catch (const reference::Wrong& wrong) {
    return wrong.what;
  }
  return "";
}
}  // namespace minitaw::schedule
