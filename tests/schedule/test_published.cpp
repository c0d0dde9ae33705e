// SPDX-License-Identifier: BSD-3-Clause
// Messages and bytes per step are those of the published schedules, wherever their rules are right
// (docs/schedules.md), over many P, D and N.
#include <array>
#include <gtest/gtest.h>
#include <set>
#include "base/error.hpp"
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/shapes.hpp"

namespace minitaw::schedule {
namespace {
/// Equal blocks, so that all shards weigh the same.
struct Measured {
  Program program;
  model::Layout layout;
  ByteMatrix matrix;

  Measured(
      const std::string& spec, int ranks, int groups, int per_rank, int layers, int replicas = 1)
      : program(build({parse_spec(spec),
            topology::Groups::equal(ranks, groups),
            per_rank * ranks,
            layers,
            replicas})),
        layout(model::make_layout(
            {layers, 12, 3, 3, 20, 37, 5, 2, model::Dtype::bf16}, cut_of(program))),
        matrix(bytes(program, layout)) {}

  /// Weights of one shard; gradients travel in the same precision.
  [[nodiscard]] std::uint64_t shard_bytes() const { return layout.shards[0].elements * 2U; }

  /// Bytes over links that count(from, to).
  [[nodiscard]] std::uint64_t over(Traffic kind, const auto& count) const {
    std::uint64_t sum = 0;
    for (const auto& [link, cell] : matrix.cells())
      sum += count(link.first, link.second) ? cell[index_of(kind)] : 0;
    return sum;
  }

  /// Weights and gradients.
  [[nodiscard]] std::uint64_t over(const auto& count) const {
    return over(Traffic::weights, count) + over(Traffic::gradients, count);
  }

  [[nodiscard]] auto leaving(int group) const {
    return [this, group](int from, int to) {
      return program.groups.group_of(from) == group && program.groups.group_of(to) != group;
    };
  }

  [[nodiscard]] std::uint64_t between(Traffic kind) const {
    return matrix.between(program.groups, kind);
  }
};

bool all(int /*from*/, int /*to*/) {
  return true;
}

void for_each_equal_grouping(const auto& check) {
  for (const int ranks : {2, 3, 4, 5, 6, 9})
    for (int groups = 1; groups <= ranks; ++groups)
      for (int n = 1; n <= 3 && ranks % groups == 0; ++n) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(groups) + " groups, N " +
                     std::to_string(n));
        check(ranks, groups, n);
      }
}

/// Shards that a link should carry, weights and gradients.
void expect_links(const Measured& m, const auto& expected) {
  const int ranks = m.program.job_ranks();
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to)
        continue;
      const auto [weights, gradients] = expected(from, to);
      EXPECT_EQ(std::pair(m.matrix.at(from, to, Traffic::weights),
                    m.matrix.at(from, to, Traffic::gradients)),
          std::pair(weights * m.shard_bytes(), gradients * m.shard_bytes()))
          << from << " to " << to;
    }
}

/// WeiPipe: three rings turn to the next rank, weights forward NP+P-2-N times, weights and
/// gradients backward NP+P-2 times. Before that ranks r and P - r exchange shards; the last hop
/// takes gradients from r to P - 1 - r.
TEST(Published, WeiPipeBytesOfEveryLink) {
  for_each_equal_grouping([](int ranks, int groups, int n) {
    const Measured m("weipipe", ranks, groups, n, ranks);
    const std::uint64_t backward = n * ranks + ranks - 2, forward = backward - n;
    expect_links(m, [&](int from, int to) {
      const bool next = to == (from + 1) % ranks;
      return std::pair{(next ? forward + backward : 0) + (to == (ranks - from) % ranks ? 1 : 0),
          (next ? backward : 0) + (to == ranks - 1 - from ? 1 : 0)};
    });
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(m.program.ranks[r].owned_shards, std::vector{(ranks - r) % ranks});
  });
}

/// What ranks keep, and how often a step a shard moves: a + b N times, weights and gradients.
struct Kept {
  const char* options;
  int weights[2], gradients[2];
};

constexpr auto kept_forms = std::to_array<Kept>({{"", {0, 2}, {0, 1}},
    {":reshard=group", {0, 1}, {0, 1}},
    {":reshard=none", {0, 1}, {0, 1}},
    {":reshard=group:fetch=step", {1, 0}, {0, 1}},
    {":reshard=none:fetch=step", {1, 0}, {0, 1}},
    {":reduce=group", {0, 2}, {1, 0}},
    {":reduce=none", {0, 2}, {1, 0}},
    {":reshard=group:fetch=step:reduce=group", {1, 0}, {1, 0}},
    {":reshard=none:fetch=step:reduce=none", {1, 0}, {1, 0}},
    {":reshard=group:reduce=none", {0, 1}, {1, 0}}});

/// FSDP: two all-gathers and a reduce-scatter of every block and micro-batch. A copy in the group
/// or on the rank is fetched once a micro-batch or a step, not once a visit; sums leave once a
/// step: (w + g) (D - 1) / D of all blocks leave each group. Without the hierarchy, every rank
/// sends (w + g) (P - 1) / P of them, the last of a group to the next one. TawPipe: the same in
/// all, but the shard at a turn stays: 2 N - 1 of 2 N P visits find it there, N - 1 of N P fetches
/// of copies.
TEST(Published, WhatIsKeptDoesNotCrossAgain) {
  for (const Kept& kept : kept_forms)
    for_each_equal_grouping([&](int ranks, int groups, int n) {
      SCOPED_TRACE(kept.options);
      const std::string options = kept.options;
      const int layers = 3, weights = kept.weights[0] + n * kept.weights[1],
                gradients = kept.gradients[0] + n * kept.gradients[1], times = weights + gradients;
      const Measured m("fsdp:hierarchical=on" + options, ranks, groups, n, layers);
      for (int k = 0; k < groups; ++k)
        EXPECT_EQ(
            m.over(m.leaving(k)) * groups, 1U * times * layers * (groups - 1) * m.shard_bytes());

      const Measured taw("tawpipe" + options, ranks, groups, n, ranks);
      const std::uint64_t each = (groups - 1) * taw.shard_bytes();
      const int stay = weights == 1 ? 0 : weights - 1;
      EXPECT_EQ(taw.between(Traffic::weights), (weights * ranks - stay) * each);
      EXPECT_EQ(taw.between(Traffic::gradients), gradients * ranks * each);

      if (options.find("group") != std::string::npos)
        return;
      const Measured flat("fsdp" + options, ranks, groups, n, layers);
      const std::uint64_t sent = 1U * times * layers * (ranks - 1) * flat.shard_bytes() / ranks;
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(flat.over([r](int from, int) { return from == r; }), sent) << "rank " << r;
      for (int k = 0; k < groups; ++k)
        EXPECT_EQ(flat.over(flat.leaving(k)), groups > 1 ? sent : 0) << "group " << k;
    });
}

/// The weights of every visit are gathered `prefetch` ticks before it.
TEST(Published, FsdpGathersAsManyTicksAheadAsItsPrefetch) {
  for (const char* form : {"fsdp:prefetch=", "fsdp:hierarchical=on:prefetch="})
    for (const int prefetch : {0, 1, 3, 8}) {
      const Measured m(form + std::to_string(prefetch), 4, 2, 2, 5);
      for (const RankProgram& rank : m.program.ranks) {
        std::set<std::pair<int, int>> visits, gathers;  // tick, shard
        for (const Action& a : rank.actions) {
          if (is_visit(a.kind))
            visits.emplace(a.tick - prefetch, a.shard);
          if (a.kind == Kind::all_gather && a.payload == Payload::weights)
            gathers.emplace(a.tick, a.shard);
        }
        EXPECT_EQ(gathers, visits) << form << prefetch;
      }
    }
}

/// Ranks own as many shards as any other, or one less, where they are blocks.
TEST(Published, TawPipeShardsAreThoseOfRanksOrOfBlocks) {
  for (const topology::Groups& groups : shapes::groupings(6)) {
    const Program of_ranks = build({parse_spec("tawpipe"), groups, 6, 8}),
                  of_blocks = build({parse_spec("tawpipe:shards=block"), groups, 6, 8});
    EXPECT_EQ(std::tuple(of_ranks.shards, of_blocks.shards, cut_of(of_blocks).shards),
        std::tuple(6, 8, 8));
    int twice = 0;
    for (int r = 0; r < 6; ++r) {
      EXPECT_EQ(std::ssize(of_ranks.ranks[r].owned_shards), 1) << groups.text();
      twice += std::ssize(of_blocks.ranks[r].owned_shards) == 2 ? 1 : 0;
    }
    EXPECT_EQ(twice, 2) << groups.text();
  }
}

/// Weight transfers of a shard to each other place: the last stays at N turns to the backward pass,
/// the first at N - 1.
std::uint64_t fetches(int shard, int ranks, int n) {
  return 2 * n - (shard == ranks - 1 ? n : 0) - (shard == 0 ? n - 1 : 0);
}

/// The owner sends a shard to each other group per micro-batch and gets a gradient; inside, both go
/// from rank to rank. Without device-bound storage, a shard that travels on from group to group
/// crosses as often.
TEST(Published, TawPipeBytesOfEveryGroup) {
  for (const std::string spec :
      {"tawpipe", "tawpipe:cco=off", "tawpipe:prefetch=1", "tawpipe:rails=2", "tawpipe:dbs=off"})
    for_each_equal_grouping([&](int ranks, int groups, int n) {
      SCOPED_TRACE(spec);
      const Measured m(spec, ranks, groups, n, ranks);
      const std::uint64_t all_visits = 2 * n * ranks - (2 * n - 1), others = groups - 1U,
                          shard = m.shard_bytes();
      EXPECT_EQ(m.between(Traffic::weights), others * all_visits * shard);
      EXPECT_EQ(m.between(Traffic::gradients), others * n * ranks * shard);
      if (spec == "tawpipe:dbs=off")
        return;
      const int size = ranks / groups;
      for (int k = 0; k < groups; ++k) {
        std::uint64_t visits = 0;
        for (const int r : m.program.groups.members(k))
          for (const int owned : m.program.ranks[r].owned_shards)
            visits += fetches(owned, ranks, n);
        EXPECT_EQ(m.over(Traffic::weights, m.leaving(k)), others * visits * shard);
        EXPECT_EQ(m.over(Traffic::gradients, m.leaving(k)), 1U * n * (ranks - size) * shard);
      }
      if (spec == "tawpipe:rails=2")
        return;
      const std::uint64_t links = groups * (size - 1);
      EXPECT_EQ(m.matrix.inside(m.program.groups, Traffic::weights), links * all_visits * shard);
      EXPECT_EQ(m.matrix.inside(m.program.groups, Traffic::gradients), links * n * ranks * shard);
    });
}

/// Without grouping, a shard and its gradient pass every link of a ring but the one before its
/// owner, rank s.
TEST(Published, OneGroupOfAllRanksCrossesEachLinkOnce) {
  for_each_equal_grouping([](int ranks, int groups, int n) {
    expect_links(Measured("tawpipe:gwps=off", ranks, groups, n, ranks), [&](int from, int to) {
      const bool next = to == (from + 1) % ranks, before = from == (to + 1) % ranks;
      const std::uint64_t weights = 2 * n * ranks - (2 * n - 1) - fetches(to, ranks, n),
                          gradients = n * (ranks - 1);
      return std::pair{next ? weights : 0, before ? gradients : 0};
    });
  });
}

/// A hidden state forward and its gradient back, over every border between stages, two sequences of
/// five tokens with 12 numbers in bf16; a V crosses it twice.
TEST(Published, PipelineBytesOfEveryGroup) {
  for (const char* spec : {"1f1b", "zb1", "zb2", "zb1:blocking=on", "zbv"})
    for_each_equal_grouping([spec](int ranks, int groups, int n) {
      const int times = shards_per_rank(parse_spec(spec));
      const Measured m(spec, ranks, groups, n, times * ranks);
      const std::uint64_t border = 1U * times * n * ranks * (2 * 5 * 12 * 2);
      for (int k = 0; k < groups; ++k)
        EXPECT_EQ(m.over(Traffic::activations, m.leaving(k)),
            border * ((k > 0 ? 1 : 0) + (k + 1 < groups ? 1 : 0)))
            << spec;
      EXPECT_EQ(m.over(Traffic::activations, all), 2 * border * (ranks - 1)) << spec;
      EXPECT_EQ(m.over(all), 0U);
    });
}

/// fp32 bytes that an all-reduce of all blocks over `members` ranks sends in all.
std::uint64_t all_reduced(const Measured& m, int members) {
  std::uint64_t bytes = 0;
  for (const model::Shard& shard : m.layout.shards)
    bytes += 2U * (members - 1) * shard.elements * 4U;
  return bytes;
}

/// Each copy sends what it sends alone; the totals of every shard are all-reduced once.
TEST(Published, DataParallelAndReplicasAddOneAllReduce) {
  for (const int ranks : {1, 2, 5}) {
    const Measured m("ddp", ranks, 1, 2, 3);
    EXPECT_EQ(m.over(all), all_reduced(m, ranks));
  }
  for (const char* spec :
      {"tawpipe", "tawpipe:rails=2", "weipipe", "fsdp", "fsdp:hierarchical=on", "zb1"})
    for (const int replicas : {2, 3})
      for (const int groups : {1, 2, 4}) {
        const Measured one(spec, 4, groups, 2, 4),
            both(spec, replicas * 4, replicas * groups, 2, 4, replicas);
        EXPECT_EQ(both.over(all), replicas * one.over(all) + all_reduced(one, replicas))
            << spec << ", " << replicas << " copies of " << groups << " groups";
      }
}

/// What decks cannot get wrong elsewhere is refused in tests/deck.
TEST(Registry, RefusesWhatCannotBeShared) {
  for (const auto& [spec, groups, replicas, says] :
      {std::tuple{"fsdp:reshard=group", "2+2", 1, "reshard"},
          {"fsdp:reduce=group", "2+2", 1, "reduce"},
          {"tawpipe", "1+2+2+1+1+2", 3, "alike"},
          {"tawpipe", "1+2+1+2+2+1", 3, "alike"}}) {
    const topology::Groups given = topology::parse_groups(groups);
    const Request request{parse_spec(spec), given, given.ranks(), given.ranks(), replicas};
    EXPECT_THAT(test::refusal_of([&] { check(request); }), test::Says({says})) << spec;
  }
}
}  // namespace
}  // namespace minitaw::schedule
