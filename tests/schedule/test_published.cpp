// SPDX-License-Identifier: BSD-3-Clause
// Messages and bytes per step are those of the published schedules, wherever their rules are right
// (docs/schedules.md), over many P, D and N.
#include <array>
#include <fmt/format.h>
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
        layout(layout_of(program, layers)),
        matrix(bytes(program, layout)) {}

  static model::Layout layout_of(const Program& program, int layers) {
    return model::make_layout(
        {layers, 12, 3, 3, 20, 37, 5, 2, model::Dtype::bf16}, cut_of(program));
  }

  /// Weights of one shard; gradients travel in the same precision.
  [[nodiscard]] std::uint64_t shard_bytes() const { return layout.shards[0].elements * 2U; }

  /// Of two sequences of five tokens with 12 numbers in bf16.
  [[nodiscard]] static std::uint64_t hidden_bytes() { return 2 * 5 * 12 * 2; }

  /// Bytes of a kind that leave a group.
  [[nodiscard]] int ranks() const { return program.job_ranks(); }

  [[nodiscard]] std::uint64_t leaving(int group, Traffic kind) const {
    std::uint64_t sum = 0;
    for (int from = 0; from < ranks(); ++from)
      for (int to = 0; to < ranks(); ++to)
        if (program.groups.group_of(from) == group && program.groups.group_of(to) != group)
          sum += matrix.at(from, to, kind);
    return sum;
  }

  /// Weights and gradients that leave a group.
  [[nodiscard]] std::uint64_t leaving(int group) const {
    return leaving(group, Traffic::weights) + leaving(group, Traffic::gradients);
  }

  /// What a rank sends to all others.
  [[nodiscard]] std::uint64_t sent_by(int rank) const {
    std::uint64_t sum = 0;
    for (int to = 0; to < ranks(); ++to)
      sum += matrix.at(rank, to, Traffic::weights) + matrix.at(rank, to, Traffic::gradients);
    return sum;
  }
};

void for_each_equal_grouping(int first_ranks, int last_ranks, const auto& check) {
  for (int ranks = first_ranks; ranks <= last_ranks; ++ranks)
    for (int groups = 1; groups <= ranks; ++groups)
      for (int n = 1; n <= 3 && ranks % groups == 0; ++n) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(groups) + " groups, N " +
                     std::to_string(n));
        check(ranks, groups, n);
      }
}

/// Shards that a link should carry, weights and gradients.
void expect_links(const Measured& m, const auto& expected) {
  for (int from = 0; from < m.ranks(); ++from)
    for (int to = 0; to < m.ranks(); ++to) {
      if (from == to)
        continue;
      const auto [weights, gradients] = expected(from, to);
      EXPECT_EQ(m.matrix.at(from, to, Traffic::weights), weights * m.shard_bytes())
          << from << " to " << to;
      EXPECT_EQ(m.matrix.at(from, to, Traffic::gradients), gradients * m.shard_bytes())
          << from << " to " << to;
    }
}

/// WeiPipe: three rings turn to the next rank, weights forward NP+P-2-N times, weights and
/// gradients backward NP+P-2 times. Before that ranks r and P - r exchange shards; the last hop
/// takes gradients from r to P - 1 - r.
TEST(Published, WeiPipeBytesOfEveryLink) {
  for_each_equal_grouping(2, 9, [](int ranks, int groups, int n) {
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

// What ranks keep
/// An option's value and how often a step it moves a shard with N micro-batches a rank.
struct Kept {
  const char* options;
  int (*weights)(int n);
  int (*gradients)(int n);
};

constexpr int once(int) {
  return 1;
}

constexpr int each(int n) {
  return n;
}

constexpr int twice(int n) {
  return 2 * n;
}

constexpr std::array kept_forms = {Kept{"", twice, each},
    Kept{":reshard=group", each, each},
    Kept{":reshard=none", each, each},
    Kept{":reshard=group:fetch=step", once, each},
    Kept{":reshard=none:fetch=step", once, each},
    Kept{":reduce=group", twice, once},
    Kept{":reduce=none", twice, once},
    Kept{":reshard=group:fetch=step:reduce=group", once, once},
    Kept{":reshard=none:fetch=step:reduce=none", once, once},
    Kept{":reshard=group:reduce=none", each, once}};

/// Two all-gathers and a reduce-scatter of every block and micro-batch. A copy in the group or on
/// the rank is fetched once a micro-batch or a step, not once a visit; sums leave once a
/// step: (w + g) (D - 1) / D of all blocks leave each group. Without the hierarchy, the last rank
/// of a group sends (w + g) (P - 1) / P of them to the next one.
TEST(Published, BytesOfFsdpAndWhatItKeepsDoesNotCrossAgain) {
  for (const Kept& kept : kept_forms)
    for_each_equal_grouping(1, 9, [&](int ranks, int groups, int n) {
      SCOPED_TRACE(kept.options);
      const int layers = 3, times = kept.weights(n) + kept.gradients(n);
      const Measured m(
          std::string("fsdp:hierarchical=on") + kept.options, ranks, groups, n, layers);
      for (int k = 0; k < groups; ++k)
        EXPECT_EQ(m.leaving(k) * groups, 1U * times * layers * (groups - 1) * m.shard_bytes()) << k;
      if (std::string(kept.options).find("group") != std::string::npos)
        return;
      const Measured flat(std::string("fsdp") + kept.options, ranks, groups, n, layers);
      const std::uint64_t sent = 1U * times * layers * (ranks - 1) * flat.shard_bytes() / ranks;
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(flat.sent_by(r), sent) << "rank " << r;
      for (int k = 0; k < groups; ++k)
        EXPECT_EQ(flat.leaving(k), groups > 1 ? sent : 0) << "group " << k;
    });
}

/// As above, but the shard at a turn stays: 2 N - 1 of 2 N P visits find it there, N - 1 of N P
/// fetches of copies.
TEST(Published, WhatTawPipeKeepsDoesNotCrossAgain) {
  for (const Kept& kept : kept_forms)
    for_each_equal_grouping(2, 8, [&](int ranks, int groups, int n) {
      SCOPED_TRACE(kept.options);
      const int weights = kept.weights(n), stay = weights == 1 ? 0 : weights - 1;
      const Measured m(std::string("tawpipe") + kept.options, ranks, groups, n, ranks);
      std::uint64_t weight_bytes = 0, gradient_bytes = 0;
      for (int k = 0; k < groups; ++k) {
        weight_bytes += m.leaving(k, Traffic::weights);
        gradient_bytes += m.leaving(k, Traffic::gradients);
      }
      const std::uint64_t each = (groups - 1) * m.shard_bytes();
      EXPECT_EQ(weight_bytes, (weights * ranks - stay) * each);
      EXPECT_EQ(gradient_bytes, kept.gradients(n) * ranks * each);
    });
}

/// A group keeps one copy of all that it does not own, and of several micro-batches one sum, a rank
/// its part.
TEST(Published, AGroupSharesItsCopyAmongItsRanks) {
  for_each_equal_grouping(2, 8, [](int ranks, int groups, int n) {
    if (groups == 1)
      return;
    const int members = ranks / groups, layers = 3, sums = n > 1 ? 1 : 0;
    const Measured fsdp(
        "fsdp:hierarchical=on:reshard=group:fetch=step:reduce=group", ranks, groups, n, layers),
        tawpipe("tawpipe:reshard=group:fetch=step:reduce=group", ranks, groups, n, ranks),
        alone("tawpipe:reshard=none:fetch=step:reduce=none", ranks, groups, n, ranks);
    for (int r = 0; r < ranks; ++r) {
      const auto slots = [&](const Measured& m, SlotClass cls) {
        return m.program.ranks[r].slots[index_of(cls)];
      };
      EXPECT_EQ(slots(fsdp, SlotClass::kept), members > 1 ? layers : 0);
      EXPECT_EQ(slots(fsdp, SlotClass::partial), sums * layers);
      EXPECT_EQ(
          held(fsdp.program, r, SlotClass::partial, 0, fsdp.layout).count * (n > 1 ? members : 1),
          fsdp.layout.shards[0].elements);
      EXPECT_EQ(slots(tawpipe, SlotClass::partial), sums * (groups - 1));
      EXPECT_GE(slots(tawpipe, SlotClass::weights), groups - 1);
      EXPECT_LE(slots(tawpipe, SlotClass::contribution), 2);
      EXPECT_EQ(slots(alone, SlotClass::weights), ranks - 1);
      EXPECT_EQ(slots(alone, SlotClass::partial), sums * (members == 1 ? ranks - 1 : ranks));
    }
  });
}

TEST(Published, HierarchicalFsdpNeedsEqualGroupsAndOfSingleRanksIsFsdp) {
  const auto fsdp = [](const char* spec, const topology::Groups& groups) {
    Program program = build({parse_spec(spec), groups, 2 * groups.ranks(), 5});
    program.schedule = "fsdp";
    return program;
  };
  EXPECT_NO_THROW(fsdp("fsdp", topology::Groups({1, 2})));
  EXPECT_THROW(fsdp("fsdp:hierarchical=on", topology::Groups({1, 2})), InputError);
  EXPECT_THROW(fsdp("fsdp:reshard=group", topology::Groups({2, 2})), InputError);
  EXPECT_THROW(fsdp("fsdp:reduce=group", topology::Groups({2, 2})), InputError);
  const topology::Groups apart({1, 1, 1});
  EXPECT_TRUE(fsdp("fsdp:hierarchical=on", apart) == fsdp("fsdp", apart));
  const topology::Groups one({3});  // its owners have all that it might keep
  EXPECT_TRUE(fsdp("fsdp:hierarchical=on:reduce=group:reshard=group", one) == fsdp("fsdp", one));
}

/// The weights of every visit are gathered `prefetch` ticks before it.
TEST(Published, FsdpGathersAsManyTicksAheadAsItsPrefetch) {
  for (const char* form : {"fsdp:prefetch={}", "fsdp:hierarchical=on:prefetch={}"})
    for (int prefetch = 0; prefetch <= 8; ++prefetch) {
      const Measured m(fmt::format(fmt::runtime(form), prefetch), 4, 2, 2, 5);
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

// TawPipe
TEST(Published, TawPipeRanksOwnAsManyShardsAsAnyOther) {
  for (const topology::Groups& groups : shapes::groupings(6))
    for (const int layers : shapes::layer_counts(6)) {
      const Program program = build({parse_spec("tawpipe"), groups, 6, layers});
      const auto owned = [](const RankProgram& rank) { return rank.owned_shards.size(); };
      const auto [least, most] = std::ranges::minmax(program.ranks, {}, owned);
      EXPECT_LE(owned(most), owned(least) + 1) << groups.text() << ", " << layers;
    }
}

/// Weight transfers of a shard to each other place: the last stays at N turns to the backward pass,
/// the first at N - 1.
std::uint64_t fetches(int shard, int ranks, int n) {
  return 2 * n - (shard == ranks - 1 ? n : 0) - (shard == 0 ? n - 1 : 0);
}

/// The owner sends a shard to each other group per micro-batch and gets a gradient; inside, both go
/// from rank to rank.
TEST(Published, TawPipeBytesOfEveryGroup) {
  for (const char* spec : {"tawpipe", "tawpipe:cco=off", "tawpipe:prefetch=1", "tawpipe:rails=2"})
    for_each_equal_grouping(2, 9, [spec](int ranks, int groups, int n) {
      const Measured m(spec, ranks, groups, n, ranks);
      const int size = ranks / groups;
      std::uint64_t all = 0;
      for (int k = 0; k < groups; ++k) {
        std::uint64_t visits = 0;
        for (const int r : m.program.groups.members(k))
          for (const int shard : m.program.ranks[r].owned_shards)
            visits += fetches(shard, ranks, n);
        EXPECT_EQ(m.leaving(k, Traffic::weights), (groups - 1U) * visits * m.shard_bytes()) << spec;
        EXPECT_EQ(m.leaving(k, Traffic::gradients), 1U * n * (ranks - size) * m.shard_bytes())
            << spec;
        all += m.leaving(k);
      }
      if (std::string(spec) != "tawpipe:rails=2") {
        const std::uint64_t links = groups * (size - 1), visits = 2 * n * ranks - (2 * n - 1);
        EXPECT_EQ(
            m.matrix.inside(m.program.groups, Traffic::weights), links * visits * m.shard_bytes());
        EXPECT_EQ(m.matrix.inside(m.program.groups, Traffic::gradients),
            links * n * ranks * m.shard_bytes());
      }
      EXPECT_EQ(all, (groups - 1U) * (3 * n * ranks - (2 * n - 1)) * m.shard_bytes()) << spec;
    });
}

/// A shard that travels on from group to group crosses as often as from its owner.
TEST(Published, DeviceBoundStorageDoesNotChangeTheSum) {
  for_each_equal_grouping(2, 9, [](int ranks, int groups, int n) {
    const Measured bound("tawpipe", ranks, groups, n, ranks),
        off("tawpipe:dbs=off", ranks, groups, n, ranks);
    for (const Traffic kind : {Traffic::weights, Traffic::gradients})
      EXPECT_EQ(off.matrix.between(off.program.groups, kind),
          bound.matrix.between(off.program.groups, kind));
  });
}

/// Without grouping, a shard and its gradient pass every link of a ring but the one before its
/// owner, rank s.
TEST(Published, OneGroupOfAllRanksCrossesEachLinkOnce) {
  for_each_equal_grouping(2, 9, [](int ranks, int groups, int n) {
    expect_links(Measured("tawpipe:gwps=off", ranks, groups, n, ranks), [&](int from, int to) {
      const bool next = to == (from + 1) % ranks, before = from == (to + 1) % ranks;
      const std::uint64_t weights = 2 * n * ranks - (2 * n - 1) - fetches(to, ranks, n),
                          gradients = n * (ranks - 1);
      return std::pair{next ? weights : 0, before ? gradients : 0};
    });
  });
}

// Pipelines
/// A hidden state forward and its gradient back, over every border between stages; a V crosses it
/// twice.
TEST(Published, PipelineBytesOfEveryGroup) {
  for (const char* spec : {"1f1b", "zb1", "zb2", "zb1:blocking=on", "zbv"})
    for_each_equal_grouping(2, 10, [spec](int ranks, int groups, int n) {
      const int times = shards_per_rank(parse_spec(spec));
      const Measured m(spec, ranks, groups, n, times * ranks);
      for (int k = 0; k < groups; ++k) {
        const int borders = times * ((k > 0 ? 1 : 0) + (k + 1 < groups ? 1 : 0));
        EXPECT_EQ(m.leaving(k, Traffic::activations), 1U * borders * n * ranks * m.hidden_bytes())
            << spec;
        EXPECT_EQ(m.leaving(k), 0U);
      }
      EXPECT_EQ(m.matrix.inside(m.program.groups, Traffic::activations) +
                    m.matrix.between(m.program.groups, Traffic::activations),
          2U * times * n * ranks * (ranks - 1) * m.hidden_bytes());
    });
}

// All-reduces of gradients
/// fp32 bytes that an all-reduce of all blocks over `members` ranks sends in all.
std::uint64_t all_reduced(const Measured& m, int members) {
  std::uint64_t bytes = 0;
  for (const model::Shard& shard : m.layout.shards)
    bytes += 2U * (members - 1) * shard.elements * 4U;
  return bytes;
}

std::uint64_t sent_by_all(const Measured& m) {
  std::uint64_t bytes = 0;
  for (int r = 0; r < m.ranks(); ++r)
    bytes += m.sent_by(r);
  return bytes;
}

TEST(Published, DataParallelBytes) {
  for_each_equal_grouping(1, 8, [](int ranks, int groups, int n) {
    const Measured m("ddp", ranks, groups, n, 3);
    EXPECT_EQ(sent_by_all(m), all_reduced(m, ranks));
  });
}

/// Each copy sends what it sends alone; the totals of every shard are all-reduced once.
TEST(Published, ReplicasAddOneAllReduce) {
  for (const char* spec :
      {"tawpipe", "tawpipe:rails=2", "weipipe", "fsdp", "fsdp:hierarchical=on", "zb1"})
    for (const int replicas : {2, 3, 5})
      for (const int groups : {1, 2, 4}) {
        constexpr int ranks = 4, n = 2;
        const Measured one(spec, ranks, groups, n, ranks);
        const Measured all(spec, replicas * ranks, replicas * groups, n, ranks, replicas);
        EXPECT_EQ(sent_by_all(all), replicas * sent_by_all(one) + all_reduced(one, replicas))
            << spec << ", " << replicas << " copies of " << groups << " groups";
      }
}
}  // namespace
}  // namespace minitaw::schedule
