// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include "schedule/program.hpp"

namespace minitaw::schedule {
/// "tawpipe:cco=off:prefetch=2" taken apart.
struct Spec {
  std::string name;
  std::map<std::string, std::string> options;

  /// Empty where it is the default.
  std::string value(const std::string& option) const {
    const auto at = options.find(option);
    return at == options.end() ? "" : at->second;
  }

  friend bool operator==(const Spec&, const Spec&) = default;
};

/// Throws InputError for an unknown schedule or option (naming the nearest one) or a value it does
/// not take.
Spec parse_spec(const std::string& text);
/// The spec in canonical form: options in alphabetical order, defaults left out.
std::string to_text(const Spec& spec);

struct Request {
  Spec spec;
  Groups groups{{1}};
  int micro_batches = 1;  ///< M of the step, all ranks together
  int layers = 1;
  int replicas = 1;  ///< replicas of the schedule, each on as many ranks with as many micro-batches
  bool clips = false;    ///< gradients are clipped by their norm over the model
  std::string folder{};  ///< from which a file in the spec is named
  int context = 1;       ///< n: so many neighbouring ranks of a group share their micro-batches
  int key_parts = 1;     ///< parts by heads in which keys of a block are gathered
  bool tied = false;     ///< one matrix is embedding and LM head
  model::BlockCosts costs{};  ///< decide how many blocks each shard has; needed where ranks share

  int ranks_of_replica() const { return groups.ranks() / replicas; }

  /// The groups of each replica. Throws InputError if they are not alike.
  Groups groups_of_replica() const;
  /// "a group of 2 ranks in each of 3 replicas", "groups of 1+3 ranks": a deck's `groups = 2` are
  /// two groups.
  std::string groups_text() const;

  /// Context groups of a replica; without context, its ranks.
  int sharers_of_replica() const { return ranks_of_replica() / context; }

  int micro_batches_of_rank() const { return micro_batches / (sharers_of_replica() * replicas); }

  friend bool operator==(const Request&, const Request&) = default;
};

struct OptionDoc {
  std::string name;
  /// Allowed values, the default first; "1..8", the last one, is a range of integers. None: any
  /// text.
  std::vector<std::string> values;
  std::string doc;
  /// Why it changes nothing in a request that passes check(); empty: it does. nullptr: always.
  std::string (*without_effect)(const Request& request) = nullptr;
};

/// A schedule in the registry. Adding one: a file that defines its entry, and a line in registry().
struct Entry {
  std::string name, doc;
  std::vector<OptionDoc> options = {};
  Program (*build)(const Request& request) = nullptr;
  bool one_rank = false;  ///< runs on one rank of the job
  /// Shards of each rank, of a layer at least; 0: any number. The option "chunks" multiplies them.
  int shards_per_rank = 0;
  bool passes_activations = false;  ///< a micro-batch visits all ranks: M need not be a multiple
  bool replicable = true;           ///< runs with replicas
  /// Why ranks cannot share sequences; empty: they can.
  std::string refuses_context{};
  bool needs_file = false;  ///< its option "file" must be given
  /// Checks what else it asks of a request. Throws InputError "key: ...".
  void (*check)(const Request& request) = nullptr;
  /// Gives options that are `auto` a value; `adapters` is the number of network adapters of each
  /// node.
  void (*settle)(Request& request, int adapters) = nullptr;
};

/// Every schedule, in the order in which help and documentation list them.
const std::vector<Entry>& registry();
/// The entry that a spec names. Throws InputError if there is none.
const Entry& entry_of(const std::string& name);
/// The value of an integer option, or its default; 1 if that is `auto`, or there is no such option.
int number_of(const Spec& spec, const std::string& option);

/// Shards that every rank of a replica has, or in a pipeline every stage; 0: any number.
int shards_per_rank(const Spec& spec);
/// Checks replicas, micro-batches, layers and ranks of a request without building it. Throws
/// InputError "key: ...".
void check(const Request& request);
/// Returns whether check() passes.
bool is_buildable(const Request& request);

struct Settled {
  Spec spec;
  /// "fsdp:hierarchical=on: all ranks are one group", of each option that is left out because it
  /// has no effect, or has another value.
  std::vector<std::string> without_effect;
};

/// The spec of a request that passes check(), with a value for every option that is `auto` on nodes
/// with so many adapters each, and without those that have no effect: what is built and recorded.
/// build() takes an `auto` as on nodes with one adapter.
Settled settled(Request request, int adapters);
Program build(const Request& request);
}  // namespace minitaw::schedule
