#include "schedule/simulate.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.hpp"
#include "schedule/costs.hpp"
#include "schedule/hand_written.hpp"
#include "schedule/registry.hpp"
#include "schedule/shapes.hpp"
#include "schedule/text.hpp"

namespace minitaw::schedule {
namespace {

using Spans = std::vector<std::vector<Span>>;

/// Every action takes what its text says: "F s0" -> 2 matches the actions whose text begins so.
Costs by_text(const Program& program, const std::map<std::string, double>& seconds) {
  return [&program, seconds](int, const Action& a) {
    for (const auto& [text, time] : seconds)
      if (to_text(a, program).starts_with(text)) return time;
    return 0.0;
  };
}

/// "begin-end" of each action of a rank that takes time.
std::string times(const std::vector<Span>& spans) {
  std::string text;
  for (const Span& span : spans)
    if (span.end > span.begin)
      text += (text.empty() ? "" : " ") + std::to_string(static_cast<int>(span.begin)) + "-" +
              std::to_string(static_cast<int>(span.end));
  return text;
}

TEST(Simulate, OneRankDoesOneThingAfterTheOther) {
  const Program program = build({parse_spec("serial"), topology::Groups({1}), 3, 2});
  double time = 0;
  std::vector<double> costs;
  const auto cost = [&](int, const Action&) { return costs.emplace_back(static_cast<double>(costs.size())); };
  const Spans spans = simulate(program, cost);
  ASSERT_EQ(spans[0].size(), costs.size());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    EXPECT_EQ(spans[0][i].ready, time);
    EXPECT_EQ(spans[0][i].begin, time);
    EXPECT_EQ(spans[0][i].end, time += costs[i]);
  }
  EXPECT_EQ(idle(program, spans).share(), 0);
}

/// F 2 on rank 0, the activations take 5, rank 1 computes, the gradients take 7 back.
TEST(Simulate, PipelineOfTwoStagesByHand) {
  const Program program = parse_program(hand_written::pipeline);
  const Spans spans =
      simulate(program, by_text(program, {{"F", 2}, {"send A1", 5}, {"B", 3}, {"send D1", 7}, {"W", 4}}));
  EXPECT_EQ(times(spans[0]), "0-2 2-7 12-19 19-22 22-26");
  EXPECT_EQ(times(spans[1]), "2-7 7-9 9-12 12-19 12-16");
  const Idle result = idle(program, spans);
  EXPECT_EQ(result.seconds, 26);
  EXPECT_EQ(result.busy, (std::vector<double>{9, 9}));
  EXPECT_DOUBLE_EQ(result.share(), 1 - 9.0 / 26);
  EXPECT_DOUBLE_EQ(result.share(1), 1 - 9.0 / 26);
}

/// Three ranks; r1 computes before it takes what r0 has long wanted to send, and r0 sends in order.
constexpr const char* late_receiver = R"(program late
shards 1
micro_batches 1
ends_slices 1
groups 3
rank 0 slots homes
   0 operands      send W0 h0 -> r1
   1 operands      send W0 h0 -> r2
   1 compute       join after operands:2
rank 1 slots homes
   0 compute       zero EG f0
   0 operands      recv W0 w0 <- r0 after compute:1
   1 compute       join after operands:1
rank 2 slots homes
   1 operands      recv W0 w0 <- r0
   1 compute       join after operands:1
)";

TEST(Simulate, MessagesWaitForBothSides) {
  const Program program = parse_program(late_receiver);
  const Spans spans = simulate(program, by_text(program, {{"zero", 4}, {"send", 3}}));
  EXPECT_EQ(times(spans[0]), "4-7 7-10");
  EXPECT_EQ(times(spans[1]), "0-4 4-7");
  EXPECT_EQ(times(spans[2]), "7-10");
  EXPECT_EQ(spans[0][0].ready, 0);
  EXPECT_EQ(spans[0][1].ready, 7);
  EXPECT_EQ(spans[2][0].ready, 0);
  EXPECT_EQ(spans[2][1].end, 10);
}

TEST(Simulate, DeadlockIsADefect) {
  Program program = parse_program(late_receiver);
  std::swap(program.ranks[0].actions[0], program.ranks[0].actions[1]);
  program.ranks[2].actions[0].waits[0] = 1;  // on the join behind it
  EXPECT_THROW((void)simulate(program, [](int, const Action&) { return 1.0; }), LogicError);
}

/// What the times must satisfy: every action starts at the earliest moment that its lane
/// and its waits allow, and transfers begin with their last side.
class Laws {
public:
  Laws(const Program& program, const Spans& spans) : program_(program), spans_(spans) {
    for (const RankProgram& rank : program.ranks)
      for (int l = 0; l < lanes; ++l) actions_.push_back(actions_of(rank, static_cast<Lane>(l)));
  }

  void check(const Costs& costs) const {
    std::map<std::tuple<int, int, int, int, int>, double> starts;
    for (int r = 0; r < static_cast<int>(program_.ranks.size()); ++r)
      for (int l = 0; l < lanes; ++l) check_lane(r, l, costs);
  }

private:
  [[nodiscard]] double finish(int r, int lane, int count) const {
    return spans_[r][actions_[r * lanes + lane][count - 1]].end;
  }

  void check_lane(int r, int lane, const Costs& costs) const {
    double ready = 0;
    for (const int i : actions_[r * lanes + lane]) {
      double start = ready;
      for (int l = 0; l < lanes; ++l)
        if (const int count = program_.ranks[r].actions[i].waits[l]; count > 0)
          start = std::max(start, finish(r, l, count));
      check_action(r, i, ready, start, costs);
      ready = spans_[r][i].end;
    }
  }

  void check_action(int r, int i, double ready, double start, const Costs& costs) const {
    const Action& a = program_.ranks[r].actions[i];
    const Span& span = spans_[r][i];
    EXPECT_EQ(span.ready, ready);
    if (is_communication(a.kind)) {
      EXPECT_GE(span.begin, start);
    } else {
      EXPECT_EQ(span.begin, start);
      EXPECT_EQ(span.end, span.begin + costs(r, a));
    }
  }

  const Program& program_;
  const Spans& spans_;
  std::vector<std::vector<int>> actions_;
};

TEST(Simulate, StartsEverythingAsEarlyAsItMay) {
  std::mt19937 random(std::random_device{}());
  for (int ranks = 2; ranks <= 6; ++ranks)
    for (const topology::Groups& groups : shapes::groupings(ranks))
      for (const char* spec : {"ddp", "tawpipe", "tawpipe:cco=off", "tawpipe:gwps=off:prefetch=2"}) {
        const Request request{parse_spec(spec), groups, 2 * ranks, ranks + 1};
        SCOPED_TRACE(shapes::name_of(request));
        const Program program = build(request);
        const unsigned seed = random();
        const Costs costs = [seed](int rank, const Action& a) {
          const auto key = static_cast<unsigned>(a.shard * 31 + a.micro_batch * 7 + rank * 13) ^ seed;
          return static_cast<double>((key * 2654435761U) >> 20);
        };
        const Spans spans = simulate(program, costs);
        Laws(program, spans).check(costs);
      }
}

/// With free transfers nothing but the order keeps a rank waiting.
double idle_seconds(const char* spec, int groups, int per_rank) {
  constexpr int ranks = 6;
  const Program program =
      build({parse_spec(spec), topology::Groups::equal(ranks, groups), per_rank * ranks, ranks});
  const Costs costs = [](int, const Action& a) {
    if (a.kind == Kind::forward) return 1.0;
    return a.kind == Kind::backward ? 2.5 : 0.0;
  };
  const Idle result = idle(program, simulate(program, free_transfers(costs)));
  EXPECT_DOUBLE_EQ(result.busy[5], per_rank * ranks * 3.5);
  return result.seconds * result.share();
}

TEST(Simulate, RanksInStepNeverIdle) {
  EXPECT_NEAR(idle_seconds("ddp", 3, 2), 0, 1e-9);
  EXPECT_NEAR(idle_seconds("tawpipe", 1, 3), 0, 1e-9);
}

}  // namespace
}  // namespace minitaw::schedule
