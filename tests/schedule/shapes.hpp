// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <utility>
#include "fixtures.hpp"
#include "schedule/registry.hpp"

/// The requests that tests of all programs go through.
namespace minitaw::schedule::shapes {
/// Two ranks that are far apart: weights and gradients go by send and recv.
inline Request relay() {
  return {parse_spec("tawpipe"), Groups({1, 1}), 2, 2};
}

/// Two stages that pass activations, the backward pass split in two.
inline Request pipeline() {
  return {parse_spec("zb1"), Groups({2}), 1, 2};
}

/// Groupings of P ranks: every number of groups, as equal as can be and with one large one.
inline std::vector<Groups> groupings(int ranks) {
  std::vector<Groups> result;
  for (int d = 1; d <= ranks; ++d) {
    std::vector<int> even(d, ranks / d), one_large(d, 1);
    for (int k = d - ranks % d; k < d; ++k)
      ++even[k];
    result.emplace_back(even);
    if (d == 1 || d == ranks)
      continue;
    one_large.front() = ranks - d + 1;
    result.emplace_back(one_large);
    result.emplace_back(std::vector<int>(one_large.rbegin(), one_large.rend()));
  }
  if (ranks >= 6)
    result.emplace_back(std::vector<int>{2, 1, ranks - 3});
  return result;
}

using Specs = std::vector<std::string>;

inline Specs joined(std::initializer_list<Specs> lists) {
  Specs result;
  for (const Specs& list : lists)
    result.insert(result.end(), list.begin(), list.end());
  return result;
}

/// A text of each list, one behind the other, in every combination.
inline Specs combined(std::initializer_list<Specs> lists) {
  Specs result = {""};
  for (const Specs& list : lists) {
    const Specs shorter = std::exchange(result, {});
    for (const std::string& begin : shorter)
      for (const std::string& end : list)
        result.push_back(begin + end);
  }
  return result;
}

/// TawPipe with combinations of its options that change the program.
inline Specs tawpipe_specs() {
  return combined({{"tawpipe"},
      joined({combined({{"", ":gwps=off"},
                  {"", ":cco=off"},
                  {":prefetch=1", ":prefetch=2", ":prefetch=3"}}),
          combined({{":dbs=off"}, {"", ":prefetch=3", ":cco=off"}}),
          combined({{":shards=block"}, {"", ":rails=2:prefetch=3", ":gwps=off", ":dbs=off"}}),
          {":rails=2", ":rails=3:prefetch=2", ":rails=64", ":rails=2:cco=off"}})});
}

/// What ranks may keep in a step: every combination of options that differs.
inline Specs keeping_specs() {
  const Specs kept = {":reshard=group", ":reshard=none"},
              reduced = {":reduce=group", ":reduce=none"};
  return joined(
      {combined({{"tawpipe", "tawpipe:rails=2", "fsdp:hierarchical=on", "fsdp"},
           joined({reduced, combined({kept, {"", ":fetch=step"}, joined({{""}, reduced})})})}),
          combined({{"tawpipe:dbs=off",
                        "tawpipe:gwps=off",
                        "tawpipe:cco=off",
                        "tawpipe:prefetch=4:grad_ticks=1",
                        "fsdp:hierarchical=on:prefetch=0"},
              {":fetch=step:reduce=group:reshard=group", ":reshard=none:reduce=none"}})});
}

/// Every other schedule of the registry, alone and with each option away from its default.
inline Specs other_specs() {
  Specs result = {"fsdp:hierarchical=on:prefetch=3",
      "1f1b:blocking=on:chunks=3",
      "1f1b:slices=3:cut=even",
      "zb1:slices=5"};
  for (const Entry& entry : registry()) {
    if (entry.one_rank || entry.needs_file || entry.name == "tawpipe")
      continue;
    result.push_back(entry.name);
    for (const OptionDoc& option : entry.options) {
      const bool range = option.values.back().find("..") != std::string::npos;
      result.push_back(entry.name + ":" + option.name + "=" + (range ? "2" : option.values.back()));
    }
  }
  return result;
}

/// Calls `visit` for one in `stride` of the requests for P ranks: every spec, grouping, number of
/// replicas and of ranks that share sequences. Numbers of micro-batches and layers, clipped
/// gradients and tied embeddings take turns; pipelines take any number of micro-batches.
void for_each_request(int ranks, const Specs& specs, int stride, const auto& visit) {
  const std::vector<int> layers = {ranks, ranks + 1, (3 * ranks + 1) / 2, 2 * ranks, 2 * ranks + 1};
  std::size_t turn = 0;
  for (const Groups& groups : groupings(ranks))
    for (const std::string& spec : specs)
      for (const int replicas : {1, 2, 3})
        for (const int context : {1, 2, 3}) {
          if (ranks % (replicas * context) != 0)
            continue;
          Request request{parse_spec(spec), groups};
          request.context = context;
          request.costs = {.block = 3, .head = 4};
          const bool pipeline = entry_of(request.spec.name).passes_activations;
          const int n = 1 + turn % 3;
          request.replicas = replicas;
          request.micro_batches = pipeline ? replicas * (1 + turn % (2 * ranks + 1)) : n * ranks;
          request.layers = std::max(layers[turn % layers.size()],
              shards_per_rank(request.spec) * request.ranks_of_replica());
          request.clips = turn % 4 == 0;
          request.key_parts = context > 1 ? n : 1;
          request.tied = turn % 7 < 3;
          if (is_buildable(request) && turn++ % stride == 0)
            visit(request);
        }
}

inline std::string name_of(const Request& request) {
  return fmt::format("{} on {}, {} micro-batches, {} layers, {} replicas, context {}{}{}",
      to_text(request.spec),
      request.groups.text(),
      request.micro_batches,
      request.layers,
      request.replicas,
      request.context,
      request.clips ? ", clipped" : "",
      request.tied ? ", tied" : "");
}
}  // namespace minitaw::schedule::shapes
