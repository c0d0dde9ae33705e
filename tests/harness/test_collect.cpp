// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "harness/case_runner.hpp"
#include "harness/taken.hpp"

namespace minitaw::harness {
namespace {
using engine::host_seconds, engine::Runtime, engine::Span;
using tests::taken_as_planned, tests::world_rank, tests::world_size;

TEST(ClockOffset, FindsClocksThatAreSetApart) {
  const double apart = 1000.0 * world_rank();
  const double before = MPI_Wtime();
  const double offset = offset_by_messages(MPI_COMM_WORLD, [&] { return host_seconds() + apart; });
  EXPECT_NEAR(offset, -apart, MPI_Wtime() - before) << "no round took longer than all of them";
}

// Rank 0's clock stands at 100, the others' advance while they wait for it: by 6, 5, 4, ... 1, 2,
// 3, 4 s.
TEST(ClockOffset, IsTakenInTheMiddleOfTheFastestRound) {
  double time = 0;
  int asked = 0;
  const double offset = offset_by_messages(MPI_COMM_WORLD, [&] {
    if (world_rank() == 0)
      return 100.0;
    if (asked++ % 2 == 1)
      time += 1 + std::abs(asked / 2 - 6);
    return time;
  });
  constexpr double before = 6 + 5 + 4 + 3 + 2;
  EXPECT_EQ(offset, world_rank() == 0 ? 0 : 100 - (before + 0.5));
}

TEST(ClockOffset, IsNoneOnOneNode) {
  EXPECT_EQ(clock_offset(MPI_COMM_WORLD), 0);
}

/// A runtime of all ranks that executes steps. The last rank seems to compute all in one tick.
class Steps : public ::testing::Test {
protected:
  Steps() : rank_(world_rank()) {
    const Case c = tests::small_case("ddp", topology::Groups({world_size()}), 2, 1);
    schedule::Program program = schedule::build_valid(request_of(c));
    for (schedule::Action& a : program.ranks.back().actions)
      if (is_visit(a.kind))
        a.tick = 0;
    runtime_ = tests::runtime_by_mpi(c, std::move(program));
  }

  /// Executes a step that rank `late` begins `seconds` after the others, and adds it.
  const std::vector<Span>& execute(TimedSteps& steps, int late = -1, double seconds = 0) {
    runtime_->prepare();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == late)
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    steps.add(runtime_->executor(), runtime_->step());
    return runtime_->executor().spans();
  }

  /// From the last rank to the first: less than one for each of three steps.
  void send_two_bytes() {
    if (world_size() == 1 || (rank_ != 0 && rank_ != world_size() - 1))
      return;
    std::byte* const data = runtime_->arena().slot({schedule::SlotClass::embeddings, 0}).data;
    const comm::Message message{
        rank_ != 0, rank_ == 0 ? world_size() - 1 : 0, schedule::Payload::weights, data, 2};
    const auto started = runtime_->transport().start(schedule::Lane::inputs_group, message);
    comm::finish({&started});
  }

  /// But for the moment at which the first of all ranks began.
  static void expect_alike(const std::vector<Span>& gathered, const std::vector<Span>& executed) {
    for (std::size_t i = 0; i < executed.size(); ++i)
      EXPECT_NEAR(gathered[i].end - gathered[i].begin, executed[i].end - executed[i].begin, 1e-6);
  }

  int rank_;
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(Steps, OnlyTheLastIsKeptWhereAllAreTooMany) {
  const std::size_t actions = runtime_->program().ranks[0].actions.size();
  EXPECT_TRUE(TimedSteps(runtime_->program(), 3, 3 * actions).keeps_all());
  TimedSteps last(runtime_->program(), 3, 3 * actions - 1);
  EXPECT_FALSE(last.keeps_all());
  execute(last);
  const std::vector<Span> executed = execute(last);
  const trace::StepSpans spans = last.gather(1, MPI_COMM_WORLD);
  if (rank_ != 0)
    return;
  expect_alike(spans[0], executed);
}

TEST_F(Steps, AreGatheredOnOneClock) {
  constexpr double seconds = 0.25;
  const schedule::Program& program = runtime_->program();
  TimedSteps steps(program, 3);
  const int late = static_cast<int>(program.ranks.size()) - 1;
  execute(steps);
  const std::vector<Span> executed = execute(steps, late, seconds);
  execute(steps);
  const trace::StepSpans spans = steps.gather(1, MPI_COMM_WORLD);
  ASSERT_EQ(spans.size(), rank_ == 0 ? program.ranks.size() : 0);
  if (rank_ != 0)
    return;
  for (std::size_t r = 0; r < spans.size(); ++r) {
    ASSERT_EQ(spans[r].size(), program.ranks[r].actions.size());
    for (const Span& s : spans[r])
      EXPECT_TRUE(0 <= s.ready && s.ready <= s.begin && s.begin <= s.end);
  }
  expect_alike(spans[0], executed);
  if (late == 0)
    return;
  EXPECT_GE(spans[late][0].begin, 0.9 * seconds) << "later than the first rank's";
  const trace::StepAccount found = trace::account(program, spans);
  EXPECT_GE(found.length, 0.9 * seconds);
  for (const trace::RankTime& rank : found.ranks)
    EXPECT_NEAR(rank.compute + rank.exposed_total() + rank.idle, found.length, 1e-9);
}

// The slowest ranks of the steps took 5, 3 and 4 s, the fastest ones 0.1, 0.2 and 0.05 s.
TEST_F(Steps, AreCollectedWithTheirRanks) {
  const int ranks = static_cast<int>(runtime_->program().ranks.size());
  TimedSteps steps(runtime_->program(), 3);
  const auto seconds = [&](int step, int rank) {
    return rank == ranks - 1 ? std::array{5.0, 3.0, 4.0}[step]
                             : std::array{0.1, 0.2, 0.05}[step] * (rank + 1);
  };
  for (int step = 0; step < 3; ++step) {
    runtime_->prepare();
    (void)runtime_->step();
    steps.add(runtime_->executor(), seconds(step, rank_));
  }
  for (const auto& [executed, more] :
      {std::pair(3, false), {4, false}, {3, true}}) {  // the second is not true
    if (more)
      send_two_bytes();
    CaseResult result;
    topology::MemoryTaken taken = taken_as_planned(runtime_->footprint());
    taken.process_peak = 1000U + static_cast<unsigned>(rank_);
    (void)collect(*runtime_, steps, executed, taken, false, MPI_COMM_WORLD, result);
    if (rank_ != 0)
      continue;
    const bool adds_up = (executed == 3 && !more) || ranks == 1;
    EXPECT_EQ(result.status, adds_up ? Status::ok : Status::wrong) << result.reason;
    if (!adds_up) {
      EXPECT_THAT(
          result.reason, testing::StartsWith(fmt::format("rank {} sent ", more ? ranks - 1 : 0)));
      EXPECT_THAT(result.reason, testing::HasSubstr(fmt::format("in {} steps where", executed)));
    }
    EXPECT_EQ(
        result.bytes_source, kernels::on_host ? "counted" : runtime_->transport().bytes_source());
    EXPECT_EQ(result.accounted_step, 2) << "the median of the slowest ranks";
    ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(ranks));
    if (ranks == 3) {
      EXPECT_EQ(result.ticks, 5) << "two forward, two backward, one to reduce the last gradient";
      EXPECT_EQ(result.idle_ticks, (std::vector{1, 1, 4}));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (int step = 0; step < 3; ++step)
        EXPECT_EQ(result.seconds[step][rank], seconds(step, rank));
      EXPECT_EQ(result.memory[rank].process_peak, 1000U + static_cast<unsigned>(rank));
    }
  }
}

// The times of a run against a clock of the test's own; a kernel that is held up makes them known
// to milliseconds.

/// Notes when the kernels of a step began and ended, and holds every call of the optimiser up.
class SlowSteps {
public:
  static constexpr double delay = 0.01;

  SlowSteps() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback(begin);
    Kokkos::Tools::Experimental::set_end_parallel_for_callback(
        [](std::uint64_t) { last_ = MPI_Wtime(); });
    first_ = last_ = 0;
  }

  ~SlowSteps() { Kokkos::Tools::Experimental::set_callbacks(before_); }

  SlowSteps(const SlowSteps&) = delete;
  SlowSteps& operator=(const SlowSteps&) = delete;

  /// From the step's first kernel to the end of its last one; the next step begins.
  static double kernels() {
    const double seconds = last_ - first_;
    first_ = 0;
    return seconds;
  }

private:
  static void begin(const char* name, std::uint32_t, std::uint64_t*) {
    const std::string_view kernel = name;
    if (kernel == "minitaw::embedding_forward" && first_ == 0)
      first_ = MPI_Wtime();
    if (kernel == "minitaw::adamw")
      std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  }

  Kokkos::Tools::Experimental::EventSet before_;
  static inline std::atomic<double> first_ = 0, last_ = 0;
};

TEST(StepTimes, AgreeWithAClockOutside) {
  CaseRunner job = tests::job();
  Case c =
      tests::small_case(job.ranks() == 1 ? "serial" : "ddp", topology::Groups({job.ranks()}), 2, 1);
  c.steps = 4;
  c.warmup = 1;
  std::vector<double> least, ends = {MPI_Wtime()};
  Limits limits;
  limits.stop = [&] {
    least.push_back(SlowSteps::kernels());
    ends.push_back(MPI_Wtime());
    return StopReason::no;
  };
  const SlowSteps slow;
  const CaseResult result = job.run(c, limits).result;
  ends.push_back(MPI_Wtime());
  ASSERT_EQ(least.size(), 5U) << result.reason;
  for (const double seconds : least)
    EXPECT_GE(seconds, SlowSteps::delay);
  if (job.rank() != 0)
    return;
  ASSERT_EQ(result.status, Status::ok) << result.reason;
  ASSERT_EQ(result.seconds.size(), 4U);
  for (std::size_t s = 0; s < 4; ++s) {
    const double seconds = result.seconds[s][0], most = ends[s + 2] - ends[s + 1];
    EXPECT_GE(seconds, least[s + 1]) << "less than the step's kernels, step " << s;
    EXPECT_LE(seconds, most) << "more than the step and what surrounds it, step " << s;
    for (const double rank : result.seconds[s]) {
      EXPECT_GE(rank, SlowSteps::delay);
      EXPECT_LE(rank, ends[s + 3] - ends[s + 1]) << "another rank's may end after that of this one";
    }
  }
  const auto step = static_cast<std::size_t>(result.accounted_step);
  const auto length = [&](std::size_t s) { return *std::ranges::max_element(result.seconds[s]); };
  int shorter = 0;
  for (std::size_t s = 0; s < 4; ++s)
    shorter += length(s) < length(step) ? 1 : 0;
  EXPECT_EQ(shorter, 1) << "the lower median";
  EXPECT_GE(result.accounted_length, least[step + 1]);
  EXPECT_LE(result.accounted_length, ends[step + 3] - ends[step + 1]);
}
}  // namespace
}  // namespace minitaw::harness
