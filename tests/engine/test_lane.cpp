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
using schedule::Action, schedule::Operand, schedule::RankProgram;
using Start = tests::FunctionStarter;
constexpr comm::WaitPolicy policy;

/// A transfer that is done after a number of calls, some of which find nothing to do.
class Slow final : public comm::Operation {
public:
  Slow(int calls, std::atomic<int>& under_way, std::function<void()> work)
      : left_(calls),
        under_way_(under_way),
        work_(std::move(work)) {
    ++under_way_;
  }

  ~Slow() override { --under_way_; }

  bool advance() override {
    if (--left_ == 0)
      work_();
    return left_ % 2 == 0;
  }

  [[nodiscard]] bool done() const override { return left_ == 0; }

private:
  int left_;
  std::atomic<int>& under_way_;
  std::function<void()> work_;
};

/// Actions that sleep and touch a variable per slot: a wait that does not hold shows as a data race
/// or an early begin.
class FakeRank final : Starter {
public:
  FakeRank(const schedule::Program& program, int rank, unsigned seed, const MakeQueues& make_queues)
      : rank_(rank),
        solo_(program),
        executor_(program, rank, *this, solo_, {.waiting = policy, .make_queues = make_queues}) {
    for (int c = 0; c < schedule::slot_classes; ++c)
      contents_[c].resize(program.ranks[rank].slots[c]);
    for (std::mt19937& random : random_)
      random.seed(seed++);
  }

  void step() { EXPECT_GT(executor_.step(), 0); }

  [[nodiscard]] const std::vector<Span>& spans() const { return executor_.spans(); }

  /// Transfers that were under way at the same time.
  [[nodiscard]] int most_under_way() const { return most_; }

private:
  comm::Transport::Started start(const Action& action) override {
    const unsigned random = random_[index_of(action.lane)]();
    if (action.lane == schedule::Lane::compute)
      std::this_thread::sleep_for(std::chrono::microseconds(random % 100));
    if (action.lane == schedule::Lane::compute ||
        random % 8 == 0) {  // what needs no other rank is over at once
      touch(action);
      return nullptr;
    }
    auto slow = std::make_unique<Slow>(
        static_cast<int>(random % 8), under_way_, [this, &action] { touch(action); });
    for (int most = most_; most < under_way_ && !most_.compare_exchange_weak(most, under_way_);) {}
    return slow;
  }

  void touch(const Action& action) {
    for (const schedule::Access& access : accesses(action, rank_)) {
      int& content = contents_[index_of(access.slot.cls)][access.slot.index];
      if (access.write)
        ++content;
      else
        sum_.fetch_add(content);
    }
  }

  int rank_;
  std::array<std::mt19937, schedule::lanes> random_;
  std::array<std::vector<int>, schedule::slot_classes> contents_;
  std::atomic<long> sum_ = 0;
  std::atomic<int> under_way_ = 0, most_ = 0;
  comm::SoloTransport solo_;
  Executor executor_;
};

schedule::Program tawpipe() {
  return schedule::build({schedule::parse_spec("tawpipe"), topology::Groups({2, 3}), 10, 6});
}

/// What these lanes do is no work of a device.
Queues fenced_queues(const QueueOptions& options) {
  return tests::faulty_queues({})(options);
}

class LaneOnQueues : public ::testing::TestWithParam<MakeQueues> {};

INSTANTIATE_TEST_SUITE_P(All,
    LaneOnQueues,
    ::testing::Values(fenced_queues, tests::simulated_streams),
    [](const auto& kind) { return kind.index == 0 ? "threads" : "streams"; });

TEST_P(LaneOnQueues, StartsActionsInOrderAndNoneBeforeItsWaitsAreOver) {
  const schedule::Program program = tawpipe();
  const RankProgram& rank = program.ranks[0];
  FakeRank fake(program, 0, 3, GetParam());
  for (int step = 0; step < 5; ++step) {
    fake.step();
    std::array<std::vector<double>, schedule::lanes> ends;
    for (std::size_t i = 0; i < rank.actions.size(); ++i)
      ends[index_of(rank.actions[i].lane)].push_back(fake.spans()[i].end);
    for (const std::vector<double>& lane : ends)
      ASSERT_TRUE(std::ranges::is_sorted(lane)) << "its own order";
    std::array<double, schedule::lanes> free{};
    for (std::size_t i = 0; i < rank.actions.size(); ++i) {
      const Span& span = fake.spans()[i];
      double& since = free[index_of(rank.actions[i].lane)];
      ASSERT_TRUE(since <= span.ready && span.ready <= span.begin && span.begin <= span.end)
          << "action " << i;
      since = span.end;
      for (int l = 0; l < schedule::lanes; ++l) {
        const int count = rank.actions[i].waits[l];
        ASSERT_GE(span.begin, count > 0 ? ends[l][count - 1] : 0) << "action " << i;
      }
    }
  }
}

/// Two lanes whose first units wait for nothing: rank 0 of two groups sends a weight and receives
/// one.
schedule::Program two_ways() {
  return schedule::build({schedule::parse_spec("tawpipe"), topology::Groups({1, 1}), 8, 4});
}

/// One lane of rank 0, and what it needs.
struct Alone {
  Alone(
      schedule::Program executed, schedule::Lane which, Start::Function function, int messages = 1)
      : program(std::move(executed)),
        start(std::move(function)),
        queues(make_queues()),
        queue(*queues[index_of(which)]),
        lane(program.ranks[0],
            actions_of(program.ranks[0], which),
            queues,
            start,
            messages,
            {.on_end = [this] { ++ended; }}) {
    lane.begin_step();
  }

  Queues make_queues() {
    QueueOptions options;
    options.units.fill(static_cast<int>(program.ranks[0].actions.size()));
    options.clock = &clock;
    return fenced_queues(options);
  }

  schedule::Program program;
  Start start;
  StepClock clock;
  Queues queues;
  Queue& queue;
  int ended = 0;  ///< actions, as the lane tells
  Sequence lane;
};

constexpr auto out = schedule::Lane::inputs_send, in = schedule::Lane::inputs_recv;

TEST(Lane, AUnitIsUnderWayUntilItsOperationIsDone) {
  std::atomic<int> under_way = 0;
  int begun = 0, ended = 0;
  Alone alone(two_ways(), out, [&](const Action&) {
    ++begun;
    return std::make_unique<Slow>(3, under_way, [&] { ++ended; });
  });
  EXPECT_TRUE(alone.lane.advance()) << "it starts";
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(std::tuple(alone.queue.begun(), alone.queue.completed()), std::tuple(1, 0));
  EXPECT_TRUE(alone.lane.advance());
  EXPECT_FALSE(alone.lane.advance()) << "the operation had nothing to do";
  EXPECT_EQ(std::tuple(alone.ended, ended), std::tuple(0, 0));
  EXPECT_TRUE(alone.lane.advance());
  EXPECT_EQ(std::tuple(alone.ended, ended), std::tuple(1, 1));
  EXPECT_EQ(begun, 2) << "the next one starts at once";
  EXPECT_EQ(under_way, 1) << "an operation that is done is gone";
}

TEST(Lane, HasAsManyMessagesUnderWayAsAreAllowed) {
  for (const int allowed : {1, 2, 3}) {
    std::atomic<int> under_way = 0;
    int begun = 0;
    // The first one takes longest: those after it count as finished only after it.
    const auto start = [&](const Action&) {
      return std::make_unique<Slow>(++begun == 1 ? 9 : 3, under_way, [] {});
    };
    Alone alone(two_ways(), out, start, allowed);
    alone.lane.advance();
    EXPECT_EQ(under_way, allowed);
    for (int k = 0; k < 8; ++k) {
      EXPECT_EQ(alone.ended, 0);
      alone.lane.advance();
    }
    alone.lane.advance();
    EXPECT_EQ(std::tuple(alone.ended, alone.queue.completed()), std::tuple(allowed, allowed));
  }
}

TEST(Lane, HasNoTwoMessagesUnderWayIntoOneSlot) {
  schedule::Program program = two_ways();
  const std::vector<int> received = actions_of(program.ranks[0], in);
  std::vector<Action>& actions = program.ranks[0].actions;
  const auto slot = [&](int k) -> schedule::Slot& { return actions[received[k]][Operand::buffer]; };
  for (int k = 0; k < 3; ++k) {
    ASSERT_EQ(actions[received[k]].kind, schedule::Kind::recv);
    actions[received[k]].waits.fill(0);
  }
  slot(1) = slot(0);
  slot(2).index = static_cast<std::int16_t>(slot(0).index + 1);
  std::atomic<int> under_way = 0;
  const auto start = [&](const Action&) { return std::make_unique<Slow>(3, under_way, [] {}); };
  Alone alone(program, in, start, 2);
  alone.lane.advance();
  EXPECT_EQ(under_way, 1) << "the second one overwrites the first";
  for (int k = 0; alone.ended < 1 && k < 9; ++k)
    alone.lane.advance();
  EXPECT_EQ(under_way, 2) << "the third one has a slot of its own";
}

TEST(Lane, DoesNotAdvanceBeforeWhatItWaitsFor) {
  // The first reduction of a gradient waits for its computation.
  Alone alone(tawpipe(), schedule::Lane::gradients_group, [](const Action&) {
    ADD_FAILURE() << "it must not start";
    return nullptr;
  });
  ASSERT_FALSE(alone.lane.done());
  for (int k = 0; k < 3; ++k)
    EXPECT_FALSE(alone.lane.advance());
  EXPECT_EQ(alone.queue.begun(), 0);
}

TEST(Executor, HasTransfersOfSeveralLanesUnderWayAtOnce) {
  const schedule::Program program = tawpipe();
  FakeRank fake(program, 0, 5, fenced_queues);
  for (int step = 0; step < 5; ++step)
    fake.step();
  EXPECT_GE(fake.most_under_way(), 2);
  EXPECT_LE(fake.most_under_way(), schedule::lanes - 1) << "each lane has one at a time";
}

/// Rank 0 of a program, whose lanes are threads.
struct Rank0 {
  Rank0(
      const schedule::Program& executed, Start::Function function, const tests::Faults& faults = {})
      : program(executed),
        start(std::move(function)),
        solo(program),
        executor(program,
            0,
            start,
            solo,
            {.waiting = policy, .make_queues = tests::faulty_queues(faults)}) {}

  schedule::Program program;
  Start start;
  comm::SoloTransport solo;
  Executor executor;
};

/// A transfer that comes to its end when something else has happened.
class Until final : public comm::Operation {
public:
  explicit Until(const bool& flag) : flag_(flag) {}

  bool advance() override { return std::exchange(done_, flag_) != flag_; }

  [[nodiscard]] bool done() const override { return done_; }

private:
  const bool& flag_;
  bool done_ = false;
};

TEST(Executor, LetsNoLaneWaitForAnother) {
  bool received = false;
  Rank0 rank(two_ways(), [&](const Action& action) -> comm::Transport::Started {
    if (action.lane == schedule::Lane::inputs_send)
      return std::make_unique<Until>(received);
    if (action.lane == schedule::Lane::inputs_recv)
      received = true;
    return nullptr;
  });
  EXPECT_GT(rank.executor.step(), 0);
}

/// What waits for a transfer, or for another lane, is no delay of the rank's own.
TEST(Executor, SaysWhatItDoesNotGetOnWith) {
  const schedule::Program program = schedule::parse_program(R"(program receives-first
shards 1
micro_batches 1
groups 1+1
rank 0 slots w1 h1 a1 x1 owned 0
   0 inputs_recv     recv W0 w0 <- r1
   0 compute         F s0 m0 w0 h0 a0 x0 after inputs_recv:1
rank 1 slots w1 owned
   0 inputs_send     send W0 w0 -> r0
)");
  Executor* asked = nullptr;
  Standing receiving, computing;
  std::atomic<int> under_way = 0;
  Rank0 rank(program, [&](const Action& action) -> comm::Transport::Started {
    if (action.lane != schedule::Lane::compute)
      return std::make_unique<Slow>(5, under_way, [&] { receiving = asked->standing(); });
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
  const schedule::Program program = schedule::parse_program(R"(program first-ends-last
shards 1
micro_batches 1
groups 1+1
rank 0 slots h1 a1 x1 owned 0
   0 inputs_send     send W0 h0 -> r1
   0 compute         F s0 m0 h0 a0 x0
rank 1 slots w1 owned
   0 inputs_recv     recv W0 w0 <- r0
)");
  const auto start = [](const Action& action) {
    if (action.kind == schedule::Kind::send)
      std::this_thread::sleep_for(milliseconds(60));
    return nullptr;
  };
  Rank0 rank(program, start, {.late = milliseconds(50)});
  const double before = host_seconds(), seconds = rank.executor.step();
  EXPECT_LE(seconds, host_seconds() - before);
  EXPECT_GE(seconds, 0.11);
  for (const Span& span : rank.executor.spans())
    EXPECT_GE(span.begin - span.ready, 0.05);
}

TEST(Executor, AFailureEndsTheStepAndSaysWhy) {
  std::atomic<int> under_way = 0;
  Rank0 rank(two_ways(), [&](const Action& action) -> comm::Transport::Started {
    if (action.lane == schedule::Lane::inputs_recv)
      throw std::runtime_error("the wire is cut");
    if (action.lane == schedule::Lane::compute)
      return nullptr;
    return std::make_unique<Slow>(1 << 30, under_way, [] {});
  });
  EXPECT_THAT([&] { (void)rank.executor.step(); },
      testing::ThrowsMessage<std::runtime_error>(testing::StrEq("the wire is cut")));
}
}  // namespace
}  // namespace minitaw::engine
