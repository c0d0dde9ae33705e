// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "fixtures.hpp"
#include "schedule/registry.hpp"

/// The requests that tests of all programs go through.
namespace minitaw::schedule::shapes {
/// Groupings of P ranks: every number of equal groups, and some unequal ones.
inline std::vector<topology::Groups> groupings(int ranks) {
  std::vector<topology::Groups> result;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d == 0)
      result.push_back(topology::Groups::equal(ranks, d));
    if (d == 1 || d == ranks)
      continue;
    std::vector<int> one_large(d, 1), rising(d, 1);
    one_large.front() = ranks - d + 1;
    for (int r = d, k = d - 1; r < ranks; ++r, k = k > 0 ? k - 1 : d - 1)
      ++rising[k];
    if (ranks % d != 0)
      result.emplace_back(rising);
    result.emplace_back(one_large);
    result.emplace_back(std::vector<int>(one_large.rbegin(), one_large.rend()));
  }
  if (ranks >= 6)
    result.emplace_back(std::vector<int>{2, 1, ranks - 3});
  return result;
}

/// Numbers of layers from P to 2 P + 1: both ends and some between.
inline std::vector<int> layer_counts(int ranks) {
  return {ranks, ranks + 1, (3 * ranks + 1) / 2, 2 * ranks, 2 * ranks + 1};
}

/// TawPipe with combinations of its options that change the program.
inline std::vector<std::string> tawpipe_specs() {
  std::vector<std::string> result;
  for (const char* more : {"dbs=off",
           "dbs=off:prefetch=3",
           "dbs=off:cco=off",
           "shards=block",
           "shards=block:rails=2:prefetch=3",
           "shards=block:gwps=off",
           "shards=block:dbs=off",
           "rails=2",
           "rails=3:prefetch=2",
           "rails=64",
           "rails=2:cco=off"})
    result.push_back(std::string("tawpipe:") + more);
  for (const char* gwps : {"on", "off"})
    for (const char* cco : {"on", "off"})
      for (const char* prefetch : {"1", "2", "3"})
        result.push_back(
            std::string("tawpipe:gwps=") + gwps + ":cco=" + cco + ":prefetch=" + prefetch);
  return result;
}

/// What ranks may keep in a step: every combination of options that differs.
inline std::vector<std::string> keeping_specs() {
  std::vector<std::string> result;
  for (const char* form : {"tawpipe", "tawpipe:rails=2", "fsdp:hierarchical=on", "fsdp"})
    for (const char* reshard : {"world", "group", "none"})
      for (const char* fetch : {"micro_batch", "step"})
        for (const char* reduce : {"world", "group", "none"}) {
          const std::string kept = std::string(reshard) + reduce;
          if (kept == "worldworld" || (kept.starts_with("world") && *fetch == 's'))
            continue;
          result.push_back(
              std::string(form) + ":reshard=" + reshard + ":fetch=" + fetch + ":reduce=" + reduce);
        }
  for (const char* other : {"tawpipe:dbs=off",
           "tawpipe:gwps=off",
           "tawpipe:cco=off",
           "tawpipe:prefetch=4:grad_ticks=1",
           "fsdp:hierarchical=on:prefetch=0"})
    for (const char* kept : {":fetch=step:reduce=group:reshard=group", ":reshard=none:reduce=none"})
      result.push_back(std::string(other) + kept);
  return result;
}

/// Every other schedule of the registry, alone and with each option away from its default.
inline std::vector<std::string> other_specs() {
  std::vector<std::string> result = {"fsdp:hierarchical=on:prefetch=3",
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

inline std::vector<std::string> joined(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> result;
  for (const auto& list : lists)
    result.insert(result.end(), list.begin(), list.end());
  return result;
}

/// Calls `visit` for one in `stride` of the requests for P ranks: every spec, grouping, number of
/// replicas and of ranks that share sequences. Numbers of micro-batches and layers, and clipped
/// gradients, take turns; pipelines take any number of micro-batches.
void for_each_request(
    int ranks, const std::vector<std::string>& specs, int stride, const auto& visit) {
  const std::vector<int> layers = layer_counts(ranks);
  std::size_t turn = 0;
  for (const topology::Groups& groups : groupings(ranks))
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
          if (is_buildable(request) && turn++ % stride == 0)
            visit(request);
        }
}

inline std::string name_of(const Request& request) {
  return to_text(request.spec) + " on " + request.groups.text() + ", " +
         std::to_string(request.micro_batches) + " micro-batches, " +
         std::to_string(request.layers) + " layers" +
         (request.replicas > 1 ? ", " + std::to_string(request.replicas) + " replicas" : "") +
         (request.context > 1 ? ", context " + std::to_string(request.context) : "") +
         (request.clips ? ", clipped" : "");
}
}  // namespace minitaw::schedule::shapes
