// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <random>
#include "engine/executor.hpp"
#include "engine/queue.hpp"
#include "engine/simulated_stream.hpp"
#include "schedule/parse.hpp"
#include "schedule/registry.hpp"

namespace minitaw::engine {
namespace {
using comm::Transport, schedule::Action, schedule::Lane;
using Start = tests::FunctionStarter;

/// A transfer that is done after a number of calls, some of which find nothing to do.
class Slow final : public comm::Operation {
public:
  explicit Slow(
      int calls, std::function<void()> work = [] {})
      : left_(calls),
        work_(std::move(work)) {}

  bool advance() override {
    if (--left_ == 0)
      work_();
    return left_ % 2 == 0;
  }

  [[nodiscard]] bool done() const override { return left_ == 0; }

private:
  int left_;
  std::function<void()> work_;
};

/// Rank 0 of a program.
struct Rank0 {
  Rank0(schedule::Program executed,
      Start::Function function,
      const MakeQueues& make_queues = tests::faulty_queues({}))
      : program(std::move(executed)),
        start(std::move(function)),
        solo(program),
        executor(program, 0, start, solo, {.make_queues = make_queues}) {}

  schedule::Program program;
  Start start;
  comm::SoloTransport solo;
  Executor executor;
};

/// What these lanes do is no work of a device: threads, or streams.
class LaneOnQueues : public testing::TestWithParam<MakeQueues> {};

INSTANTIATE_TEST_SUITE_P(All,
    LaneOnQueues,
    testing::Values(tests::faulty_queues({}), tests::simulated_streams),
    [](const auto& kind) { return kind.index == 0 ? "threads" : "streams"; });

/// Actions sleep and touch a variable per slot: a wait that does not hold shows as a data race or
/// an early begin.
TEST_P(LaneOnQueues, StartsActionsInOrderAndNoneBeforeItsWaitsAreOver) {
  const schedule::Program program =
      schedule::build({schedule::parse_spec("tawpipe"), topology::Groups({2, 3}), 10, 6});
  const std::vector<Action>& actions = program.ranks[0].actions;
  std::array<std::vector<int>, schedule::slot_classes> contents;
  for (const int c : indices(contents))
    contents[c].resize(program.ranks[0].slots[c]);
  std::atomic<long> sum = 0;
  const auto touch = [&](const Action& action) {
    for (const schedule::Access& access : accesses(action, 0)) {
      int& content = contents[index_of(access.slot.cls)][access.slot.index];
      if (access.write)
        ++content;
      else
        sum += content;
    }
  };
  std::array<std::mt19937, schedule::lanes> random;
  for (const int l : indices(random))
    random[l].seed(l);
  const auto start = [&](const Action& action) -> Transport::Started {
    const int number = static_cast<int>(random[index_of(action.lane)]() % 100);
    if (action.lane == Lane::compute)
      std::this_thread::sleep_for(std::chrono::microseconds(number));
    const int calls = action.lane == Lane::compute ? 0 : number % 8;
    if (calls > 0)
      return std::make_unique<Slow>(calls, [&] { touch(action); });
    touch(action);  // what needs no other rank is over at once
    return nullptr;
  };
  Rank0 rank(program, start, GetParam());
  for (int step = 0; step < 5; ++step) {
    EXPECT_GT(rank.executor.step(), 0);
    const std::vector<Span>& spans = rank.executor.spans();
    std::array<std::vector<double>, schedule::lanes> ends;
    for (const int i : indices(actions))
      ends[index_of(actions[i].lane)].push_back(spans[i].end);
    std::array<double, schedule::lanes> free{};
    for (const int i : indices(actions)) {
      const Span& span = spans[i];
      double& since = free[index_of(actions[i].lane)];
      ASSERT_TRUE(since <= span.ready && span.ready <= span.begin && span.begin <= span.end)
          << "action " << i;
      since = span.end;
      for (int l = 0; l < schedule::lanes; ++l) {
        const int count = actions[i].waits[l];
        ASSERT_GE(span.begin, count > 0 ? ends[l][count - 1] : 0) << "action " << i;
      }
    }
  }
}

/// A program by what rank 0 does.
schedule::Program program_of(const std::string& actions) {
  return schedule::parse_program("program by-hand\nshards 1\nmicro_batches 1\ngroups 1+1\n"
                                 "rank 0 slots w2 h1 a1 x1 owned 0\n" +
                                 actions + "rank 1 slots w1 owned\n");
}

const std::string sends = "   0 inputs_send     send W0 h0 -> r1\n";
const std::string sends_four = sends + sends + sends + sends;
const std::string receives_and_computes = R"(   0 inputs_recv     recv W0 w0 <- r1
   0 compute         F s0 m0 w0 h0 a0 x0 after inputs_recv:1
)";

/// One lane of rank 0, and what it needs.
struct Alone {
  Alone(const std::string& actions, Lane which, Start::Function function, int messages = 1)
      : program(program_of(actions)),
        start(std::move(function)),
        queue(*queues[index_of(which)]),
        lane(program.ranks[0],
            actions_of(program.ranks[0], which),
            queues,
            start,
            messages,
            {.on_end = [this] { ++ended; }}) {
    lane.begin_step();
  }

  schedule::Program program;
  Start start;
  StepClock clock;
  Queues queues = tests::faulty_queues({})({.units = {4, 4, 4, 4, 4, 4, 4}, .clock = &clock});
  Queue& queue;
  int ended = 0;  ///< actions, as the lane tells
  Sequence lane;
};

TEST(Lane, HasAsManyMessagesUnderWayAsAreAllowedUntilTheyAreDone) {
  for (const int allowed : {1, 2, 3}) {
    // The first one takes longest: those after it count as finished only after it.
    const auto start = [begun = 0](const Action&) mutable {
      return std::make_unique<Slow>(++begun == 1 ? 9 : 3);
    };
    Alone alone(sends_four, Lane::inputs_send, start, allowed);
    EXPECT_TRUE(alone.lane.advance()) << "it starts";
    for (int left = 8; left > 0; --left) {
      EXPECT_EQ(alone.lane.advance(), left % 2 == 0) << "else the operations have nothing to do";
      EXPECT_EQ(std::pair(alone.queue.begun(), alone.queue.completed()), std::pair(allowed, 0));
      EXPECT_EQ(alone.ended, 0);
    }
    EXPECT_TRUE(alone.lane.advance());
    EXPECT_EQ(std::pair(alone.ended, alone.queue.completed()), std::pair(allowed, allowed));
    EXPECT_EQ(alone.queue.begun(), std::min(2 * allowed, 4)) << "the next ones start at once";
  }
}

TEST(Lane, HasNoTwoMessagesUnderWayIntoOneSlot) {
  const std::string actions = R"(   0 inputs_recv     recv W0 w0 <- r1
   0 inputs_recv     recv W0 w0 <- r1
   0 inputs_recv     recv W0 w1 <- r1
)";
  const auto start = [](const Action&) { return std::make_unique<Slow>(3); };
  Alone alone(actions, Lane::inputs_recv, start, 2);
  alone.lane.advance();
  EXPECT_EQ(alone.queue.begun(), 1) << "the second one overwrites the first";
  for (int k = 0; alone.ended < 1 && k < 9; ++k)
    alone.lane.advance();
  EXPECT_EQ(alone.queue.begun(), 3) << "the third one has a slot of its own";
}

TEST(Executor, LetsNoLaneWaitForAnother) {
  bool received = false;
  Rank0 rank(program_of(sends_four + receives_and_computes),
      [&](const Action& action) -> Transport::Started {
        if (action.lane == Lane::inputs_send)
          return std::make_unique<Slow>(100, [&] { EXPECT_TRUE(received); });
        if (action.lane == Lane::inputs_recv)
          received = true;
        return nullptr;
      });
  EXPECT_GT(rank.executor.step(), 0);
}

/// What waits for a transfer, or for another lane, is no delay of the rank's own.
TEST(Executor, SaysWhatItDoesNotGetOnWith) {
  Executor* asked = nullptr;
  Standing receiving, computing;
  Rank0 rank(program_of(receives_and_computes), [&](const Action& action) -> Transport::Started {
    if (action.lane != Lane::compute)
      return std::make_unique<Slow>(5, [&] { receiving = asked->standing(); });
    computing = asked->standing();
    return nullptr;
  });
  asked = &rank.executor;
  EXPECT_EQ(asked->standing().lanes, "");
  (void)asked->step();
  EXPECT_EQ(receiving.unexplained, "");
  EXPECT_THAT(receiving.lanes, testing::HasSubstr("\n  inputs_recv in tick 0 recv W0 w0 <- r1"));
  EXPECT_THAT(receiving.lanes, testing::HasSubstr(", waits for inputs_recv:1"));
  EXPECT_EQ(computing.unexplained, "has not finished F s0 m0 w0 h0 a0 x0");
  EXPECT_EQ(asked->standing().unexplained, "");
}

// Its first action begins late, and the action that comes first in the program ends last.
TEST(Executor, AStepLastsFromItsBeginningToItsLastEnd) {
  using std::chrono::milliseconds;
  const auto start = [](const Action& action) {
    if (action.lane == Lane::inputs_send)
      std::this_thread::sleep_for(milliseconds(60));
    return nullptr;
  };
  Rank0 rank(program_of(sends + "   0 compute         F s0 m0 h0 a0 x0\n"),
      start,
      tests::faulty_queues({.late = milliseconds(50)}));
  const double before = host_seconds(), seconds = rank.executor.step();
  EXPECT_LE(seconds, host_seconds() - before);
  EXPECT_GE(seconds, 0.11);
  for (const Span& span : rank.executor.spans())
    EXPECT_GE(span.begin - span.ready, 0.05);
}

TEST(Executor, AFailureEndsTheStepAndSaysWhy) {
  Rank0 rank(program_of(sends_four + receives_and_computes),
      [](const Action& action) -> Transport::Started {
        if (action.lane == Lane::inputs_recv)
          throw std::runtime_error("the wire is cut");
        return std::make_unique<Slow>(1 << 30);
      });
  EXPECT_THAT([&] { (void)rank.executor.step(); },
      testing::ThrowsMessage<std::runtime_error>(testing::StrEq("the wire is cut")));
}
}  // namespace
}  // namespace minitaw::engine
