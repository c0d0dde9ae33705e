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
/// emission): transfers for later ticks first, then the tick's compute, then what it leaves for others.
enum class Phase : std::uint8_t {
  prepare,
  fetch_first,  ///< what must be at hand before anything can be fetched
  fetch_inter,
  fetch_intra,
  compute,
  give_intra,
  give_inter,
  give_last,
  finish
};

/// Part `index` of `count` equal ones.
struct Part {
  int index = 0;
  int count = 1;
};

/// What a message carries.
struct Cargo {
  Payload payload = Payload::weights;
  int shard = -1;
  int micro_batch = -1;
  Part part{};
};

/// A program under construction: actions over values instead of slots, in any order of emission. Rules append
/// to it; finish() sorts, assigns slots, derives waits. Both sides of every transfer are emitted by one call,
/// which gives all ranks one common order and so rules out deadlock by construction.
///
/// With copies, rules see one copy only: its ranks, groups and micro-batches, counted from 0. finish() makes
/// the others.
class Draft {
public:
  /// Nobody owns a shard yet; every rank holds the ends. `groups` and `micro_batches` are those of all
  /// `copies` together, which must be alike (see groups_of_copy()).
  Draft(const topology::Groups& groups, int shards, int micro_batches, int copies = 1);

  [[nodiscard]] const topology::Groups& groups() const { return groups_; }
  [[nodiscard]] int ranks() const { return groups_.ranks(); }
  [[nodiscard]] int shards() const { return program_.shards; }
  [[nodiscard]] int micro_batches() const { return program_.micro_batches / program_.copies; }
  [[nodiscard]] int copies() const { return program_.copies; }

  /// Gives a rank a home and a total slot for a shard, or for its slice of it.
  void own(int rank, int shard);
  /// Ranks keep one of `count` slices of the shards that they own; each says which.
  void slice_homes(int count) { program_.home_slices = count; }
  void keep_slice(int rank, int slice) { program_.ranks[rank].slice = slice; }
  [[nodiscard]] Part home_part(int rank) const { return {program_.ranks[rank].slice, program_.home_slices}; }
  /// Shards are padded so that `count` parts are equal, besides what was asked for before.
  void cut_shards(int count);

  /// Home / total value of a shard on a rank; invalid if the rank does not own it.
  [[nodiscard]] Value home(int rank, int shard) const;
  [[nodiscard]] Value total(int rank, int shard) const;

  /// The embedding is on one rank, final norm and head are on another, the rest hold no ends.
  void split_ends(int embedding_rank, int head_rank);
  [[nodiscard]] bool ends_split() const { return program_.ends_split; }
  [[nodiscard]] bool holds_ends(int rank) const;
  [[nodiscard]] int ends_slice(int rank) const { return program_.ranks[rank].ends_slice; }
  void set_ends_slices(int slices) { program_.ends_slices = slices; }
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
  struct Message {
    Cargo cargo;
    Endpoint from, to;
  };
  /// send on one side, recv on the other.
  void transfer(int tick, Phase phase, const Cargo& cargo, Endpoint from, Endpoint to);
  /// Messages of one tick. All ranks have them in one order: who issues all lanes in one sequence, as NCCL
  /// does, never meets another order elsewhere.
  void exchange(int tick, Phase phase, const std::vector<Message>& messages);
  /// A collective of a communicator; values[i] belongs to its i-th rank.
  void collective(int tick, Phase phase, Action action, const std::vector<Value>& values);
  /// Whether these ranks are of one group.
  [[nodiscard]] bool together(const std::vector<int>& ranks) const;
  /// Sum over the copies of this rank, on each of them.
  void sum_over_copies(int rank, int tick, Phase phase, Action action, Value value);

  /// Last tick in which each of a rank's totals is used so far, by home slot; -1 if never.
  [[nodiscard]] std::vector<int> last_use_of_totals(int rank) const;

  /// Sorts each rank's actions into issue order, assigns slots, derives waits, makes the copies. Without
  /// overlap, transfers wait for the computation before them and computation for the transfers before it.
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

  [[nodiscard]] static Action message_action(int tick, const Cargo& cargo);
  void finish_rank(int rank, bool overlap);

  topology::Groups groups_;  ///< of one copy
  Program program_;          ///< ranks and communicators of the first copy, until it is finished
  std::vector<Rank> drafts_;
};

/// The groups of each of `copies` runs of consecutive ranks. Throws InputError if they are not alike.
[[nodiscard]] topology::Groups groups_of_copy(const topology::Groups& groups, int copies);

}  // namespace minitaw::schedule
