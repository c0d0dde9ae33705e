// SPDX-License-Identifier: BSD-3-Clause
// How long compute lanes stand still when transfers are free, and how many micro-batches are in
// flight: what the papers say of their orders, found by executing the programs.
#include <gtest/gtest.h>
#include "schedule/account.hpp"
#include "schedule/shapes.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::schedule {
namespace {
/// Durations of the visits; everything else is free.
struct Times {
  double f = 1, b = 1, w = 1;

  double all() const { return f + b + w; }

  double of(Kind kind) const {
    if (kind == Kind::forward)
      return f;
    if (kind == Kind::backward)
      return b + w;
    if (kind == Kind::backward_input)
      return b;
    return kind == Kind::backward_weight ? w : 0;
  }
};

/// Of one rank: from its first visit to its last.
struct Window {
  double begin = 1e300, end = 0, busy = 0;

  double bubble() const { return end - begin - busy; }
};

std::vector<Window> windows_of(const Program& program, const Times& times) {
  const auto spans = simulate(program, [&](int, const Action& a) { return times.of(a.kind); });
  std::vector<Window> windows(spans.size());
  for (std::size_t r = 0; r < spans.size(); ++r)
    for (const auto& [ready, begin, end] : spans[r])
      if (Window& w = windows[r]; end > begin)
        w = {std::min(w.begin, begin), std::max(w.end, end), w.busy + (end - begin)};
  return windows;
}

double seconds_of(const Program& program, const Times& times) {
  return std::ranges::max(windows_of(program, times), {}, &Window::end).end;
}

int slots_of(const Program& program, int rank, SlotClass cls) {
  return program.ranks[rank].slots[index_of(cls)];
}

/// Calls check(program, p, times) for p stages and ratios of T_F, T_B and T_W, with enough
/// micro-batches for a steady state, and more.
void with_programs(const std::string& spec, const auto& check) {
  for (const int p : {4, 7})
    for (const Times& times : {Times{1, 1, 1}, {1, 1.33, 1}, {1, 2, 1}, {1, 1.5, 0.6}})
      for (const int micro_batches : {2 * p, 2 * p + 3}) {
        const Request request{parse_spec(spec), Groups::equal(p, p), micro_batches, 4 * p};
        SCOPED_TRACE(shapes::name_of(request) + ", T_B " + std::to_string(times.b));
        check(build(request), p, times);
      }
}

/// (p - 1 - i) (T_F + T_BW) / k at stage i where a slice takes a k-th, (p - 1) of it for the step;
/// ZB-H1 has T_F + T_B - T_W instead, ZB-H2 T_F + T_B - 2 T_W, and its windows begin T_F later from
/// stage to stage. (p - i - 1 + k) / k micro-batches in flight. Keys of slices stay until the first
/// slice has come back, when p - i - 2 + 2 k slices have gone forward; one gradient at a time.
TEST(Bubbles, OfOneForwardOneBackwardAndZeroBubble) {
  for (const int k : {1, 2, 3, 8})
    for (const std::string name : {"1f1b", "zb1", "zb2"}) {
      if (name == "zb2" && k > 1)
        continue;
      with_programs(name + (k > 1 ? ":slices=" + std::to_string(k) : ""),
          [&](const Program& program, int p, const Times& whole) {
            const Times times{whole.f / k, whole.b / k, whole.w / k};
            const double step = name == "1f1b"  ? times.all()
                                : name == "zb1" ? times.f + times.b - times.w
                                                : times.f + times.b - 2 * times.w;
            const auto windows = windows_of(program, times);
            for (int i = 0; i < p; ++i) {
              EXPECT_NEAR(windows[i].bubble(), (p - 1 - i) * step, 1e-9);
              EXPECT_EQ(slots_of(program, i, SlotClass::saved),
                  name == "1f1b"  ? p - i - 1 + k
                  : name == "zb1" ? p - 1 + k
                                  : 2 * p - 1);
              if (name == "zb2") {
                EXPECT_NEAR(windows[i].begin, i * times.f, 1e-9);
              }
              if (name == "1f1b") {
                EXPECT_EQ(slots_of(program, i, SlotClass::prefix),
                    k > 1 ? 2 + (p - i - 2 + k - 1) / k : 0);
              }
              EXPECT_EQ(slots_of(program, i, SlotClass::prefix_gradient), k > 1 ? 1 : 0);
            }
            if (name != "zb2") {
              EXPECT_NEAR(seconds_of(program, times),
                  (p - 1) * step + program.micro_batches * times.all(),
                  1e-9);
            }
          });
    }
}

/// v chunks a rank: visits and bubble take a v-th of the time (Narayanan et al., SC'21), with (p -
/// 1) / v more kept. Rounds that are not full have gaps.
TEST(Bubbles, InterleavedOneForwardOneBackward) {
  for (const int chunks : {2, 3, 4})
    with_programs("1f1b:chunks=" + std::to_string(chunks),
        [chunks](const Program& program, int p, const Times& times) {
          const int m = program.micro_batches;
          if (m % p != 0)
            return;
          for (int i = 0; i < p; ++i)
            EXPECT_EQ(slots_of(program, i, SlotClass::saved),
                std::min(2 * (p - i) - 1 + (chunks - 1) * p, chunks * m));
          EXPECT_NEAR(windows_of(program, times)[0].end, (p - 1 + chunks * m) * times.all(), 1e-9);
        });
}

/// No rank stands still between its first visit and its last if all halves take as long, with 2 p
/// halves of activations of p micro-batches on every rank, as the first of 1F1B has (Qi et al.,
/// arXiv 2405.15362).
TEST(Bubbles, ZeroBubbleV) {
  with_programs("zbv", [](const Program& program, int p, const Times&) {
    const auto windows = windows_of(program, {1, 1, 1});
    for (int i = 0; i < p; ++i) {
      EXPECT_EQ(slots_of(program, i, SlotClass::saved), 2 * p);
      EXPECT_NEAR(windows[i].begin, i, 1e-9);
      EXPECT_NEAR(windows[i].bubble(), 0, 1e-9);
    }
  });
}

/// End of a step in which stage i waits for nothing but the messages that its next visit needs.
double dependent_seconds(const Program& program, const Times& times, double message) {
  std::map<std::tuple<int, int, bool>, double> arrival, before;  // by stage, micro-batch, direction
  double end = 0;
  do {
    before = arrival;
    for (int i = 0; i < std::ssize(program.ranks); ++i) {
      double now = 0;
      for (const Action& a : program.ranks[i].actions) {
        const bool forward = a.kind == Kind::forward,
                   passes = is_visit(a.kind) && a.kind != Kind::backward_weight;
        if (passes)
          now = std::max(now, arrival[{i, a.micro_batch, forward}]);
        now += times.of(a.kind);
        if (passes)
          arrival[{forward ? i + 1 : i - 1, a.micro_batch, forward}] = now + message;
      }
      end = std::max(end, now);
    }
  } while (arrival != before);
  return end;
}

/// The order of messages in a lane and the reuse of slots hold nothing up.
TEST(Bubbles, MessagesTakeNoMoreThanTheirOwnTime) {
  for (const auto& [name, longest] : {std::pair{"1f1b", 0.9}, {"zb1", 0.9}, {"zb2", 0.3}})
    with_programs(name, [&, most = longest](const Program& program, int, const Times& times) {
      for (const double message : {0.1 * most, most}) {
        const auto spans = simulate(program, [&](int, const Action& a) {
          return a.kind == Kind::send ? message : times.of(a.kind);
        });
        EXPECT_NEAR(idle(program, spans).seconds, dependent_seconds(program, times, message), 1e-9)
            << message;
      }
    });
}

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
/// Ranks that need not wait are no slower.
TEST(WeightPipelines, WeiPipeIdlesLikeOneForwardOneBackwardInLockStep) {
  const Times times{1, 1.5, 1};
  for (const int ranks : {2, 3, 5, 8})
    for (const int n : {1, 2, 3}) {
      const Program program = build({parse_spec("weipipe"), Groups({ranks}), n * ranks, ranks});
      const double turns = n * ranks + ranks - 1, seconds = lock_step_seconds(program, times);
      EXPECT_NEAR(seconds, turns * times.all(), 1e-9) << ranks << " ranks, N " << n;
      EXPECT_LE(seconds_of(program, times), seconds + 1e-9);
    }
}

/// Group k is k ticks behind the first; D - 1 more, one for the last gradients (2 N P + D, as
/// published) and a fetch. Fetched one tick ahead, two groups need not wait.
TEST(WeightPipelines, TawPipeIsStaggeredByOneTickAGroup) {
  const Times times{1, 1.5, 1};
  for (const int groups : {1, 2, 3, 5})
    for (const int size : {2, 3})
      for (const int n : {1, 3}) {
        const int ranks = groups * size;
        const Program program =
            build({parse_spec("tawpipe"), Groups::equal(ranks, groups), n * ranks, ranks});
        SCOPED_TRACE(std::to_string(groups) + " groups of " + std::to_string(size));
        EXPECT_EQ(ticks(program).total, 2 * n * ranks + groups + 1);
        const double useful = n * ranks * times.all(), seconds = seconds_of(program, times);
        EXPECT_LE(seconds, lock_step_seconds(program, times) + 1e-9);
        EXPECT_NEAR(groups <= 2 ? seconds : useful, useful, 1e-9);
      }
}

/// Schedules in which ranks do not lean on one another's computation never stand still.
TEST(WeightPipelines, RanksInStepNeverIdle) {
  const Times times{1, 1.5, 1};
  for (const char* spec : {"ddp", "fsdp", "fsdp:hierarchical=on", "tawpipe:gwps=off"})
    for (const int groups : {1, 3, 6}) {
      const Request request{parse_spec(spec), Groups::equal(6, groups), 18, 6};
      EXPECT_NEAR(seconds_of(build(request), times), 18 * times.all(), 1e-9)
          << shapes::name_of(request);
    }
}
}  // namespace
}  // namespace minitaw::schedule
