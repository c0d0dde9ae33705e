// SPDX-License-Identifier: BSD-3-Clause
// How long compute lanes stand still when transfers are free, and how many micro-batches are in
// flight: what the papers say of their orders, found by executing the programs.
#include <gtest/gtest.h>
#include <iterator>
#include <tuple>
#include "schedule/account.hpp"
#include "schedule/shapes.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::schedule {
namespace {
/// Durations of the visits; everything else is free.
struct Times {
  double f = 1, b = 1, w = 1;

  [[nodiscard]] double all() const { return f + b + w; }

  [[nodiscard]] double of(Kind kind) const {
    if (kind == Kind::forward)
      return f;
    if (kind == Kind::backward)
      return b + w;
    if (kind == Kind::backward_input)
      return b;
    return kind == Kind::backward_weight ? w : 0;
  }
};

void PrintTo(const Times& t, std::ostream* out) {
  *out << t.f << " " << t.b << " " << t.w;
}

/// Of one rank: from its first visit to its last.
struct Window {
  double begin = 1e300, end = 0, busy = 0;

  [[nodiscard]] double bubble() const { return end - begin - busy; }
};

std::vector<Window> windows_of(const Program& program, const Times& times) {
  const auto spans = simulate(program, [&](int, const Action& a) { return times.of(a.kind); });
  std::vector<Window> windows(spans.size());
  for (std::size_t r = 0; r < spans.size(); ++r)
    for (std::size_t i = 0; i < spans[r].size(); ++i) {
      const auto& [ready, begin, end] = spans[r][i];
      if (end == begin)
        continue;
      Window& w = windows[r];
      w = {std::min(w.begin, begin), std::max(w.end, end), w.busy + (end - begin)};
    }
  return windows;
}

double seconds_of(const Program& program, const Times& times) {
  return std::ranges::max(windows_of(program, times), {}, &Window::end).end;
}

int saved_slots(const Program& program, int rank) {
  return program.ranks[rank].slots[static_cast<std::size_t>(SlotClass::saved)];
}

class Bubbles : public testing::TestWithParam<std::tuple<int, Times>> {
protected:
  [[nodiscard]] static int stages() { return std::get<0>(GetParam()); }

  [[nodiscard]] static Times times() { return std::get<1>(GetParam()); }

  /// Enough micro-batches for a steady state, and more.
  static void with_programs(const std::string& schedule, const auto& check) {
    for (const int micro_batches : {2 * stages(), 2 * stages() + 3, 5 * stages()})
      for (const int groups : {1, stages() / 2, stages()}) {
        const Request request{parse_spec(schedule),
            topology::Groups::equal(stages(), groups),
            micro_batches,
            4 * stages()};
        SCOPED_TRACE(shapes::name_of(request));
        check(build(request));
      }
  }
};

/// Windows of ZB-H2 begin T_F later from stage to stage: the bubble is inside a stage's own.
TEST_P(Bubbles, OfOneForwardOneBackwardAndZeroBubble) {
  const auto [f, b, w] = times();
  const int p = stages();
  const double all = f + b + w;
  for (const auto& [spec, step] :
      {std::pair{"1f1b", all}, {"zb1", f + b - w}, {"zb2", f + b - 2 * w}})
    with_programs(spec, [&, spec = std::string(spec), step = step](const Program& program) {
      const auto windows = windows_of(program, times());
      for (int i = 0; i < p; ++i) {
        EXPECT_EQ(saved_slots(program, i), spec == "1f1b" ? p - i : spec == "zb1" ? p : 2 * p - 1);
        EXPECT_NEAR(windows[i].bubble(), (p - 1 - i) * step, 1e-9);
        EXPECT_NEAR(windows[i].begin, spec == "zb2" ? i * f : windows[i].begin, 1e-9);
      }
      const double first = windows[0].end, any = std::ranges::max(windows, {}, &Window::end).end,
                   expected = (p - 1) * step + program.micro_batches * all;
      EXPECT_NEAR(spec == "1f1b" ? first : spec == "zb1" ? any : expected, expected, 1e-9);
    });
}

/// v chunks a rank: visits and bubble take a v-th of the time (Narayanan et al., SC'21), with (p -
/// 1) / v more kept.
TEST_P(Bubbles, InterleavedOneForwardOneBackward) {
  for (const int chunks : {2, 3, 4})
    with_programs("1f1b:chunks=" + std::to_string(chunks), [chunks](const Program& program) {
      if (program.micro_batches % stages() != 0)
        return;  // rounds that are not full have gaps
      const auto windows = windows_of(program, times());
      for (int i = 0; i < stages(); ++i)
        EXPECT_EQ(saved_slots(program, i),
            std::min(
                2 * (stages() - i) - 1 + (chunks - 1) * stages(), chunks * program.micro_batches));
      EXPECT_NEAR(
          windows[0].end, (stages() - 1 + chunks * program.micro_batches) * times().all(), 1e-9);
    });
}

/// No rank stands still between its first visit and its last if all halves take as long, with 2 p
/// halves of activations of p micro-batches on every rank, as the first of 1F1B has (Qi et al.,
/// arXiv 2405.15362).
TEST_P(Bubbles, ZeroBubbleV) {
  with_programs("zbv", [](const Program& program) {
    const auto windows = windows_of(program, {1, 1, 1});
    for (int i = 0; i < stages(); ++i) {
      EXPECT_EQ(saved_slots(program, i), 2 * stages());
      EXPECT_NEAR(windows[i].begin, i, 1e-9);
      EXPECT_NEAR(windows[i].bubble(), 0, 1e-9);
    }
  });
}

/// End of a step in which a rank waits for nothing but the messages that its next visit needs.
double dependent_seconds(const Program& program, const Times& times, double message) {
  std::vector<std::vector<Action>> visits(program.ranks.size());
  std::vector<std::size_t> next(visits.size()), rank_of(program.shards);
  std::vector<double> free(visits.size());
  std::map<std::tuple<int, int, bool>, double> done;  // by shard, micro-batch and direction
  for (std::size_t r = 0; r < visits.size(); ++r) {
    std::ranges::copy_if(
        program.ranks[r].actions, std::back_inserter(visits[r]), is_visit, &Action::kind);
    for (const int shard : program.ranks[r].owned_shards)
      rank_of[shard] = r;
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < visits.size(); ++r)
      for (; next[r] < visits[r].size(); ++next[r], moved = true) {
        const Action& v = visits[r][next[r]];
        const bool forward = v.kind == Kind::forward, passes = v.kind != Kind::backward_weight;
        const int before = v.shard + (forward ? -1 : 1);
        if (passes && before >= 0 && before < program.shards) {
          const auto sent = done.find({before, v.micro_batch, forward});
          if (sent == done.end())
            break;
          free[r] = std::max(free[r], sent->second + (rank_of[before] == r ? 0 : message));
        }
        free[r] += times.of(v.kind);
        if (passes)
          done[{v.shard, v.micro_batch, forward}] = free[r];
      }
  }
  return std::ranges::max(free);
}

/// The order of messages in a lane and the reuse of slots hold nothing up.
TEST_P(Bubbles, MessagesTakeNoMoreThanTheirOwnTime) {
  const std::map<std::string, double> longest = {{"1f1b", 0.9}, {"zb1", 0.9}, {"zb2", 0.3}};
  for (const auto& [schedule, most] : longest)
    for (const double message : {0.1 * most, most}) {
      const Program program = build(
          {parse_spec(schedule), topology::Groups::equal(stages(), 1), 3 * stages(), 2 * stages()});
      const auto spans = simulate(program, [&](int, const Action& a) {
        return a.kind == Kind::send ? message : times().of(a.kind);
      });
      EXPECT_NEAR(idle(program, spans).seconds, dependent_seconds(program, times(), message), 1e-9)
          << schedule << ", messages of " << message;
    }
}

INSTANTIATE_TEST_SUITE_P(Stages,
    Bubbles,
    testing::Combine(testing::Values(4, 8),
        testing::Values(Times{1, 1, 1}, Times{1, 1.33, 1}, Times{1, 2, 1}, Times{1, 1.5, 0.6})));

/// Seconds of a step in which all ranks begin a tick together.
double lock_step_seconds(const Program& program, const Times& times) {
  std::map<int, double> longest;
  for (const RankProgram& rank : program.ranks)
    for (const Action& a : rank.actions)
      longest[a.tick] = std::max(longest[a.tick], times.of(a.kind));
  double seconds = 0;
  for (const auto& [tick, duration] : longest)
    seconds += duration;
  return seconds;
}

/// The rings turn N P + P - 1 times forward and as often backward, for N P visits of each kind.
TEST(WeightPipelines, WeiPipeIdlesLikeOneForwardOneBackwardInLockStep) {
  const Times times{1, 1.5, 1};
  for (int ranks = 2; ranks <= 9; ++ranks)
    for (int n = 1; n <= 4; ++n) {
      const Program program =
          build({parse_spec("weipipe"), topology::Groups({ranks}), n * ranks, ranks});
      const double turns = n * ranks + ranks - 1, seconds = lock_step_seconds(program, times);
      EXPECT_NEAR(seconds, turns * times.all(), 1e-9) << ranks << " ranks, N " << n;
      EXPECT_LE(seconds_of(program, times), seconds + 1e-9)
          << "ranks that need not wait are no slower";
    }
}

/// Group k is k ticks behind the first; D - 1 more, one for the last gradients (2 N P + D, as
/// published) and a fetch.
TEST(WeightPipelines, TawPipeIsStaggeredByOneTickAGroup) {
  const Times times{1, 1.5, 1};
  for (int groups = 1; groups <= 6; ++groups)
    for (int size = 2; size <= 3; ++size)
      for (int n = 1; n <= 3; ++n) {
        const int ranks = groups * size;
        const Program program = build(
            {parse_spec("tawpipe"), topology::Groups::equal(ranks, groups), n * ranks, ranks});
        SCOPED_TRACE(std::to_string(groups) + " groups of " + std::to_string(size));
        EXPECT_EQ(ticks(program).total, 2 * n * ranks + groups + 1);
        const double useful = n * ranks * times.all(), seconds = seconds_of(program, times);
        EXPECT_LE(seconds, lock_step_seconds(program, times) + 1e-9);
        EXPECT_NEAR(groups <= 2 ? seconds : useful, useful, 1e-9)
            << "fetched one tick ahead, two need not wait";
      }
}

/// Six blocks on four ranks: shards of a block each are six, of which ranks own one or two. A visit
/// of a shard of two takes twice as long, so four shards hold up groups of one rank.
TEST(WeightPipelines, ShardsOfTawPipeAreThoseOfRanksOrOfBlocks) {
  const auto program_of = [](const char* spec) {
    return build({parse_spec(spec), topology::Groups::equal(4, 4), 8, 6});
  };
  const Program of_ranks = program_of("tawpipe"), of_blocks = program_of("tawpipe:shards=block");
  EXPECT_EQ(std::tuple(of_ranks.shards, of_blocks.shards), std::tuple(4, 6));
  std::vector<std::size_t> owned;
  for (const RankProgram& rank : of_blocks.ranks)
    owned.push_back(rank.owned_shards.size());
  EXPECT_EQ(owned, (std::vector<std::size_t>{2, 2, 1, 1}));
  EXPECT_EQ(cut_of(of_blocks).shards, 6);
}

/// Schedules in which ranks do not lean on one another's computation never stand still.
TEST(WeightPipelines, RanksInStepNeverIdle) {
  const Times times{1, 1.5, 1};
  for (const char* spec : {"ddp", "fsdp", "fsdp:hierarchical=on", "tawpipe:gwps=off"})
    for (const int groups : {1, 2, 3, 6})
      for (const int n : {1, 3}) {
        const Request request{parse_spec(spec), topology::Groups::equal(6, groups), 6 * n, 6};
        EXPECT_NEAR(seconds_of(build(request), times), 6 * n * times.all(), 1e-9)
            << shapes::name_of(request);
      }
}
}  // namespace
}  // namespace minitaw::schedule
