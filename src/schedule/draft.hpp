#pragma once

#include <vector>

#include "schedule/program.hpp"

namespace minitaw::schedule {

/// The content of a slot before it has one: "the weights of shard 3 as fetched for tick 7". Each gets a slot
/// for as long as it lives, from its first to its last use in issue order.
struct Value {
  int id = -1;
  SlotClass cls = SlotClass::home;

  [[nodiscard]] bool valid() const { return id >= 0; }
  friend bool operator==(const Value&, const Value&) = default;
};

/// Where an action stands inside its tick. Within a rank, actions are issued by (tick, phase, order of
/// emission): transfers for later ticks first, then the tick's compute, then the gradients of the tick
/// before.
enum class Phase : std::uint8_t {
  prepare,
  fetch_inter,
  fetch_intra,
  compute,
  give_intra,
  give_inter,
  finish
};

/// A program under construction: actions over values instead of slots, in any order of emission. Rules append
/// to it; finish() sorts, assigns slots, derives waits. Both sides of every transfer are emitted by one call,
/// which gives all ranks one common order and so rules out deadlock by construction.
class Draft {
public:
  /// Nobody owns a shard yet.
  Draft(const topology::Groups& groups, int shards, int micro_batches);

  [[nodiscard]] const topology::Groups& groups() const { return program_.groups; }
  [[nodiscard]] int ranks() const { return program_.groups.ranks(); }
  [[nodiscard]] int shards() const { return program_.shards; }
  [[nodiscard]] int micro_batches() const { return program_.micro_batches; }

  /// Gives a rank a home and a total slot for a shard.
  void own(int rank, int shard);
  /// Home / total value of a shard on a rank; invalid if the rank does not own it.
  [[nodiscard]] Value home(int rank, int shard) const;
  [[nodiscard]] Value total(int rank, int shard) const;
  [[nodiscard]] static Value ends() { return {0, SlotClass::ends}; }
  [[nodiscard]] static Value ends_total() { return {0, SlotClass::ends_total}; }
  /// A new value for a slot of a transit class.
  [[nodiscard]] Value value(int rank, SlotClass cls);

  /// Index of a communicator with these ranks, made at first use.
  int communicator(const std::string& name, const std::vector<int>& ranks);
  int world();
  int group(int group);

  /// Emits an action of one rank; `values` become its slots, in order.
  void add(int rank, Phase phase, Action action, std::initializer_list<Value> values);

  struct Endpoint {
    int rank;
    Value value;
  };
  /// send on one side, recv on the other, in the lane that their groups say.
  void transfer(int tick, Payload payload, int shard, Endpoint from, Endpoint to);
  /// A collective of a communicator; values[i] belongs to its i-th rank.
  void collective(int tick, Phase phase, Action action, const std::vector<Value>& values);

  void set_ends_slices(int slices) { program_.ends_slices = slices; }

  /// Sorts each rank's actions into issue order, assigns slots, derives waits. Without overlap, transfers
  /// wait for the computation before them and computation for the transfers before it.
  [[nodiscard]] Program finish(bool overlap = true) &&;

private:
  struct Emitted {
    Action action;
    Phase phase;
    std::array<Value, 4> values{};
  };
  struct Rank {
    std::vector<Emitted> emitted;
    int next_value = 0;
  };

  Program program_;
  std::vector<Rank> drafts_;
};

}  // namespace minitaw::schedule
