// SPDX-License-Identifier: BSD-3-Clause
// Messages and bytes per step are those of the published schedules, wherever their rules are right
// (docs/schedules.md), over many P, D and N.
#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/shapes.hpp"

namespace minitaw::schedule {
namespace {
/// Equal blocks, so that all shards weigh the same.
struct Published {
  Program program;
  Layout layout;
  ByteMatrix matrix;
  std::uint64_t shard;  ///< bytes of its weights; gradients travel in the same precision

  Published(
      const std::string& spec, int ranks, int groups, int per_rank, int layers, int replicas = 1)
      : program(build(
            {parse_spec(spec), Groups::equal(ranks, groups), per_rank * ranks, layers, replicas})),
        layout(model::make_layout(
            {layers, 12, 3, 3, 20, 37, 5, 2, model::Dtype::bf16}, cut_of(program))),
        matrix(bytes(program, layout)),
        shard(layout.shards[0].elements * 2U) {}

  /// Bytes that leave these ranks.
  std::uint64_t leaving(const Ranks& ranks, Traffic kind) const {
    const auto is_one = [&](int rank) { return std::ranges::count(ranks, rank) > 0; };
    std::uint64_t sum = 0;
    for (const auto& [link, cell] : matrix.cells())
      sum += is_one(link.first) && !is_one(link.second) ? cell[index_of(kind)] : 0;
    return sum;
  }

  std::uint64_t shards_leaving(const Ranks& ranks) const {
    return leaving(ranks, Traffic::weights) + leaving(ranks, Traffic::gradients);
  }

  std::uint64_t between(Traffic kind) const { return matrix.between(program.groups, kind); }

  /// From any rank to any other, also of another replica, which has no place in the groups.
  std::uint64_t all(Traffic kind) const {
    std::uint64_t sum = 0;
    for (const auto& [link, cell] : matrix.cells())
      sum += cell[index_of(kind)];
    return sum;
  }

  std::uint64_t all_shards() const { return all(Traffic::weights) + all(Traffic::gradients); }
};

void for_each_equal_grouping(const auto& check) {
  for (const int ranks : {2, 3, 4, 5, 6, 9})
    for (int groups = 1; groups <= ranks; ++groups)
      for (int n = 1; n <= 3 && ranks % groups == 0; ++n) {
        SCOPED_TRACE(fmt::format("{} ranks, {} groups, N {}", ranks, groups, n));
        check(ranks, groups, n);
      }
}

/// Shards that a link should carry, weights and gradients.
void expect_links(const Published& m, const auto& expected) {
  const int ranks = m.program.job_ranks();
  ByteMatrix right;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      const auto [weights, gradients] = expected(from, to);
      const bool other = from != to;
      right.add(from, to, Traffic::weights, other ? weights * m.shard : 0);
      right.add(from, to, Traffic::gradients, other ? gradients * m.shard : 0);
      right.add(from, to, Traffic::embeddings, m.matrix.at(from, to, Traffic::embeddings));
    }
  EXPECT_EQ(m.matrix.cells(), right.cells());
}

/// WeiPipe: three rings turn to the next rank, weights forward NP+P-2-N times, weights and
/// gradients backward NP+P-2 times. Before that ranks r and P - r exchange shards; the last hop
/// takes gradients from r to P - 1 - r.
TEST(Published, WeiPipeBytesOfEveryLink) {
  for_each_equal_grouping([](int ranks, int groups, int n) {
    const Published m("weipipe", ranks, groups, n, ranks);
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
struct KeptForm {
  std::string options;
  int weights[2], gradients[2];
};

const std::vector<KeptForm> kept_forms = {{"", {0, 2}, {0, 1}},
    {":reshard=group", {0, 1}, {0, 1}},
    {":reshard=none", {0, 1}, {0, 1}},
    {":reshard=group:fetch=step", {1, 0}, {0, 1}},
    {":reduce=group", {0, 2}, {1, 0}},
    {":reduce=none", {0, 2}, {1, 0}},
    {":reshard=none:fetch=step:reduce=none", {1, 0}, {1, 0}}};

/// FSDP: two all-gathers and a reduce-scatter of every block and micro-batch. A copy in the group
/// or on the rank is fetched once a micro-batch or a step, not once a visit; sums leave once a
/// step: (w + g) (D - 1) / D of all blocks leave each group. Without the hierarchy, every rank
/// sends (w + g) (P - 1) / P of them, the last of a group to the next one. TawPipe: the same in
/// all, but the shard at a turn stays: 2 N - 1 of 2 N P visits find it there, N - 1 of N P fetches
/// of copies.
TEST(Published, WhatIsKeptDoesNotCrossAgain) {
  for (const auto& [options, of_weights, of_gradients] : kept_forms)
    for_each_equal_grouping([&](int ranks, int groups, int n) {
      SCOPED_TRACE(options);
      const int layers = 3, weights = of_weights[0] + n * of_weights[1],
                gradients = of_gradients[0] + n * of_gradients[1];
      const Published m("fsdp:hierarchical=on" + options, ranks, groups, n, layers);
      const std::uint64_t moved = (weights + gradients) * layers * m.shard;
      for (int k = 0; k < groups; ++k)
        EXPECT_EQ(m.shards_leaving(m.program.groups.members(k)) * groups, moved * (groups - 1));

      const Published taw("tawpipe" + options, ranks, groups, n, ranks);
      const std::uint64_t each = (groups - 1) * taw.shard;
      const int stay = weights == 1 ? 0 : weights - 1;
      EXPECT_EQ(taw.between(Traffic::weights), (weights * ranks - stay) * each);
      EXPECT_EQ(taw.between(Traffic::gradients), gradients * ranks * each);

      if (options.find("group") != std::string::npos)
        return;
      const Published flat("fsdp" + options, ranks, groups, n, layers);
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(flat.shards_leaving({r}) * ranks, moved * (ranks - 1)) << "rank " << r;
      for (int k = 0; k < groups && groups > 1; ++k)
        EXPECT_EQ(flat.shards_leaving(flat.program.groups.members(k)) * ranks, moved * (ranks - 1));
    });
}

/// The weights of every visit are gathered `prefetch` ticks before it.
TEST(Published, FsdpGathersAsManyTicksAheadAsItsPrefetch) {
  for (const char* form : {"fsdp:prefetch=", "fsdp:hierarchical=on:prefetch="})
    for (const int prefetch : {0, 1, 3, 8}) {
      const Published m(form + std::to_string(prefetch), 4, 2, 2, 5);
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
  using Owned = std::multiset<std::size_t>;
  for (const Groups& groups : shapes::groupings(6))
    for (const auto& [spec, expected] : {std::pair{"tawpipe", Owned{1, 1, 1, 1, 1, 1}},
             {"tawpipe:shards=block", {1, 1, 1, 1, 2, 2}}}) {
      Owned owned;
      for (const RankProgram& rank : build({parse_spec(spec), groups, 6, 8}).ranks)
        owned.insert(rank.owned_shards.size());
      EXPECT_EQ(owned, expected) << spec << " on " << groups.text();
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
      const Published m(spec, ranks, groups, n, ranks);
      const std::uint64_t all_visits = 2 * n * ranks - (2 * n - 1), others = groups - 1U,
                          shard = m.shard;
      EXPECT_EQ(m.between(Traffic::weights), others * all_visits * shard);
      EXPECT_EQ(m.between(Traffic::gradients), others * n * ranks * shard);
      if (spec == "tawpipe:dbs=off")
        return;
      const int size = ranks / groups;
      for (int k = 0; k < groups; ++k) {
        const Ranks members = m.program.groups.members(k);
        std::uint64_t visits = 0;
        for (const int r : members)
          for (const int owned : m.program.ranks[r].owned_shards)
            visits += fetches(owned, ranks, n);
        EXPECT_EQ(m.leaving(members, Traffic::weights), others * visits * shard);
        EXPECT_EQ(m.leaving(members, Traffic::gradients), 1U * n * (ranks - size) * shard);
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
    expect_links(Published("tawpipe:gwps=off", ranks, groups, n, ranks), [&](int from, int to) {
      const bool next = to == (from + 1) % ranks, before = from == (to + 1) % ranks;
      const std::uint64_t weights = 2 * n * ranks - (2 * n - 1) - fetches(to, ranks, n),
                          gradients = n * (ranks - 1);
      return std::pair{next ? weights : 0, before ? gradients : 0};
    });
  });
}

/// A hidden state forward and its gradient back, over every border between stages, two sequences of
/// five tokens with 12 numbers in bf16; a V crosses it twice.
TEST(Published, PipelineBytesOfEveryBorder) {
  for (const char* spec : {"1f1b", "zb1", "zb2", "zb1:blocking=on", "zbv"})
    for_each_equal_grouping([spec](int ranks, int groups, int n) {
      SCOPED_TRACE(spec);
      const int times = shards_per_rank(parse_spec(spec));
      const Published m(spec, ranks, groups, n, times * ranks);
      const std::uint64_t border = 1U * times * n * ranks * (2 * 5 * 12 * 2);
      for (int r = 0; r + 1 < ranks; ++r)
        EXPECT_EQ(std::pair(m.matrix.at(r, r + 1, Traffic::activations),
                      m.matrix.at(r + 1, r, Traffic::activations)),
            std::pair(border, border));
      EXPECT_EQ(m.all(Traffic::activations), 2 * border * (ranks - 1));
      EXPECT_EQ(m.all_shards(), 0U);
    });
}

/// fp32 bytes that an all-reduce of all blocks over `members` ranks sends in all.
std::uint64_t all_reduced(const Published& m, int members) {
  std::uint64_t bytes = 0;
  for (const model::Shard& shard : m.layout.shards)
    bytes += 2U * (members - 1) * shard.elements * 4U;
  return bytes;
}

/// Each copy sends what it sends alone; the totals of every shard are all-reduced once.
TEST(Published, DataParallelAndReplicasAddOneAllReduce) {
  for (const int ranks : {1, 2, 5}) {
    const Published m("ddp", ranks, 1, 2, 3);
    EXPECT_EQ(m.all_shards(), all_reduced(m, ranks));
  }
  for (const char* spec :
      {"tawpipe", "tawpipe:rails=2", "weipipe", "fsdp", "fsdp:hierarchical=on", "zb1"})
    for (const int replicas : {2, 3})
      for (const int groups : {1, 2, 4}) {
        const Published one(spec, 4, groups, 2, 4),
            both(spec, replicas * 4, replicas * groups, 2, 4, replicas);
        EXPECT_EQ(both.all_shards(), replicas * one.all_shards() + all_reduced(one, replicas))
            << spec << ", " << replicas << " copies of " << groups << " groups";
      }
}

/// What decks cannot get wrong elsewhere is refused in tests/deck.
TEST(Registry, RefusesWhatCannotBeShared) {
  for (const auto& [spec, groups, replicas, says] :
      {std::tuple{"fsdp:reshard=group", "2+2", 1, "reshard"},
          {"fsdp:reduce=group", "2+2", 1, "reduce"},
          {"tawpipe", "1+2+1+2+2+1", 3, "alike"}}) {
    const Groups given = topology::parse_groups(groups);
    const Request request{parse_spec(spec), given, given.ranks(), given.ranks(), replicas};
    EXPECT_THAT(test::refusal_of([&] { check(request); }), test::Says({says})) << spec;
  }
}
}  // namespace
}  // namespace minitaw::schedule
