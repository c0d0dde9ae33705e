#include "engine/lane.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

#include "engine/fenced_queue.hpp"
#include "engine/lane_thread.hpp"
#include "engine/player.hpp"
#include "engine/simulated_stream.hpp"
#include "schedule/registry.hpp"

namespace minitaw::engine {
namespace {

using schedule::Action;
using schedule::RankProgram;

/// Plays a rank's three lanes with work that only sleeps and touches a plain variable per slot: a wait that
/// does not hold shows as a data race (ThreadSanitizer) or as an action that began too early.
class FakeRank {
public:
  FakeRank(const RankProgram& program, int rank, unsigned seed, const MakeQueues& make_queues)
      : rank_(rank), queues_(make_queues(options(program))), spans_(program.actions.size()),
        compute_(program, schedule::Lane::compute, progress_, queues_, clock_, work(seed)),
        intra_(program, schedule::Lane::intra, progress_, queues_, clock_, work(seed + 1)),
        inter_(program, schedule::Lane::inter, progress_, queues_, clock_, work(seed + 2)),
        intra_thread_(intra_, progress_), inter_thread_(inter_, progress_) {
    for (int c = 0; c < schedule::slot_classes; ++c) contents_[c].resize(program.slots[c]);
  }

  void step() {
    progress_.begin_step();
    clock_.begin_step();
    for (Lane* lane : {&compute_, &intra_, &inter_}) lane->begin_step();
    intra_thread_.begin_step();
    inter_thread_.begin_step();
    compute_.play();
    intra_thread_.wait_until_idle();
    inter_thread_.wait_until_idle();
    for (const auto& queue : queues_) queue->finish([] {});
    progress_.rethrow_if_failed();
    for (const Lane* lane : {&compute_, &intra_, &inter_}) lane->read(spans_);
  }

  [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }

private:
  [[nodiscard]] QueueOptions options(const RankProgram& program) {
    QueueOptions options;
    for (int l = 0; l < schedule::lanes; ++l)
      options.units[l] = static_cast<int>(units(program, static_cast<schedule::Lane>(l)).size());
    options.clock = &clock_;
    options.waiting = [this] { progress_.check(); };
    return options;
  }

  Lane::Run work(unsigned seed) {
    return [this, random = std::mt19937(seed)](std::span<const Action* const> unit,
                                               const Lane::Received& received) mutable {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
      for (const Action* action : unit)
        if (action->kind == schedule::Kind::recv) touch(*action);
      received();
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
      for (const Action* action : unit)
        if (action->kind != schedule::Kind::recv) touch(*action);
    };
  }

  void touch(const Action& action) {
    for (const schedule::Access& access : accesses(action, rank_)) {
      int& content = contents_[static_cast<std::size_t>(access.slot.cls)][access.slot.index];
      if (access.write) ++content;
      else sum_.fetch_add(content);
    }
  }

  int rank_;
  Progress progress_;
  Clock clock_;
  Queues queues_;
  std::vector<Span> spans_;
  std::array<std::vector<int>, schedule::slot_classes> contents_;
  std::atomic<long> sum_ = 0;
  Lane compute_, intra_, inter_;
  LaneThread intra_thread_, inter_thread_;
};

schedule::Program tawpipe() {
  return schedule::build({schedule::parse_spec("tawpipe"), topology::Groups({2, 3}), 10, 6});
}

/// Threads on every back end: what these lanes do is no work of a device.
Queues fenced_queues(const QueueOptions& options) {
  Queues queues;
  for (int l = 0; l < schedule::lanes; ++l)
    queues[l] = std::make_unique<FencedQueue>(lane_space(static_cast<schedule::Lane>(l)), options.units[l],
                                              *options.clock, options.waiting);
  return queues;
}

class LaneOnQueues : public ::testing::TestWithParam<MakeQueues> {};
INSTANTIATE_TEST_SUITE_P(All, LaneOnQueues, ::testing::Values(fenced_queues, tests::simulated_streams),
                         [](const auto& kind) { return kind.index == 0 ? "threads" : "streams"; });

TEST_P(LaneOnQueues, StartsNothingBeforeItsWaitsAreOver) {
  const schedule::Program program = tawpipe();
  const RankProgram& rank = program.ranks[0];
  FakeRank fake(rank, 0, 3, GetParam());
  for (int step = 0; step < 5; ++step) {
    fake.step();
    std::array<std::vector<double>, schedule::lanes> ends;
    for (std::size_t i = 0; i < rank.actions.size(); ++i)
      ends[static_cast<std::size_t>(rank.actions[i].lane)].push_back(fake.spans()[i].end);
    for (std::size_t i = 0; i < rank.actions.size(); ++i)
      for (int l = 0; l < schedule::lanes; ++l) {
        const int count = rank.actions[i].waits[l];
        ASSERT_GE(fake.spans()[i].begin, count > 0 ? ends[l][count - 1] : 0) << "action " << i;
      }
  }
}

TEST_P(LaneOnQueues, PlaysItsOwnActionsInOrder) {
  const schedule::Program program = tawpipe();
  const RankProgram& rank = program.ranks[4];
  FakeRank fake(rank, 4, 9, GetParam());
  fake.step();
  std::array<double, schedule::lanes> last{};
  for (std::size_t i = 0; i < rank.actions.size(); ++i) {
    double& before = last[static_cast<std::size_t>(rank.actions[i].lane)];
    ASSERT_GE(fake.spans()[i].end, before) << "action " << i;
    before = fake.spans()[i].end;
  }
}

/// A rank that receives in the lane's first batch and sends in it too, so slowly that only who waits for the
/// batch as a whole waits long.
TEST(Lane, WhoWaitsForWhatABatchReceivesDoesNotWaitForWhatItSends) {
  const schedule::Program program =
      schedule::build({schedule::parse_spec("tawpipe"), topology::Groups({1, 1}), 8, 4});
  const RankProgram& rank = program.ranks[1];
  const schedule::Unit batch = schedule::units(rank, schedule::Lane::inter).front();
  ASSERT_EQ(rank.actions[batch.actions.front()].kind, schedule::Kind::recv);
  ASSERT_EQ(rank.actions[batch.actions.back()].kind, schedule::Kind::send);
  Progress progress;
  const Clock clock;
  QueueOptions options;
  options.units.fill(static_cast<int>(rank.actions.size()));
  options.clock = &clock;
  const Queues queues = fenced_queues(options);
  const int receives = static_cast<int>(batch.actions.size()) - 1;
  Lane inter(rank, schedule::Lane::inter, progress, queues, clock, [&](auto, auto& received) {
    EXPECT_EQ(progress.count(schedule::Lane::inter), 0);
    received();
    EXPECT_EQ(progress.count(schedule::Lane::inter), receives);
  });
  progress.begin_step();
  inter.begin_step();
  inter.play_next();
  EXPECT_EQ(progress.count(schedule::Lane::inter), receives + 1);
  std::vector<Span> spans(rank.actions.size());
  inter.read(spans);
  EXPECT_LE(spans[batch.actions.front()].end, spans[batch.actions.back()].end);
}

TEST(LaneThread, AFailureEndsTheStepAndSaysWhy) {
  const schedule::Program program = tawpipe();
  Progress progress;
  const Clock clock;
  QueueOptions options;
  options.units.fill(static_cast<int>(program.ranks[0].actions.size()));
  options.clock = &clock;
  const Queues queues = fenced_queues(options);
  Lane inter(program.ranks[0], schedule::Lane::inter, progress, queues, clock,
             [](auto, auto&) { throw std::runtime_error("the wire is cut"); });
  inter.begin_step();
  LaneThread thread(inter, progress);
  progress.begin_step();
  thread.begin_step();
  thread.wait_until_idle();
  EXPECT_THROW(progress.wait(schedule::Lane::inter, 1), Stopped);
  EXPECT_THROW(progress.rethrow_if_failed(), std::runtime_error);
}

}  // namespace
}  // namespace minitaw::engine
