// SPDX-License-Identifier: BSD-3-Clause
// Times of all ranks: on one clock, of the right steps, and no more than the step.
#include "harness/collect.hpp"
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
using engine::Span;

// Rank 0's clock stands at 100, the others' advance while they wait for it: by 6, 5, 4, ... 1, 2,
// 3, 4 s.
TEST(ClockOffset, IsTakenInTheMiddleOfTheFastestRound) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD);
  double time = 0;
  int asked = 0;
  const double offset = offset_by_messages(MPI_COMM_WORLD, [&] {
    if (rank == 0)
      return 100.0;
    if (asked++ % 2 == 1)
      time += 1 + std::abs(asked / 2 - 6);
    return time;
  });
  constexpr double before = 6 + 5 + 4 + 3 + 2;
  EXPECT_EQ(offset, rank == 0 ? 0 : 100 - (before + 0.5));
  EXPECT_EQ(clock_offset(MPI_COMM_WORLD), 0) << "a node has one clock";
}

/// A runtime of all ranks that executes steps. The last rank seems to compute all in one tick.
class Steps : public tests::Job {
protected:
  Steps() {
    const Case c = tests::small_case("ddp", topology::Groups({ranks_}), 2, 1);
    schedule::Program program = schedule::build_valid(request_of(c));
    for (schedule::Action& a : program.ranks.back().actions)
      if (is_visit(a.kind))
        a.tick = 0;
    runtime_ = tests::runtime_by_mpi(c, std::move(program));
  }

  /// Executes a step that the last rank begins `seconds` after the others, and adds it.
  std::vector<Span> execute(TimedSteps& steps, double late = 0) {
    runtime_->prepare();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == ranks_ - 1)
      std::this_thread::sleep_for(std::chrono::duration<double>(late));
    steps.add(runtime_->executor(), runtime_->step());
    return runtime_->executor().spans();
  }

  /// But for the moment at which the first of all ranks began.
  static void expect_alike(const std::vector<Span>& gathered, const std::vector<Span>& executed) {
    for (std::size_t i = 0; i < executed.size(); ++i)
      EXPECT_NEAR(gathered[i].end - gathered[i].begin, executed[i].end - executed[i].begin, 1e-6);
  }

  std::unique_ptr<engine::Runtime> runtime_;
};

TEST_F(Steps, OnlyTheLastIsKeptWhereAllAreTooMany) {
  const std::size_t actions = runtime_->program().ranks[0].actions.size();
  EXPECT_TRUE(TimedSteps(runtime_->program(), 3, 3 * actions).keeps_all());
  TimedSteps last(runtime_->program(), 3, 3 * actions - 1);
  EXPECT_FALSE(last.keeps_all());
  execute(last);
  const std::vector<Span> executed = execute(last);
  const trace::StepSpans spans = last.gather(1, MPI_COMM_WORLD);
  if (rank_ == 0)
    expect_alike(spans[0], executed);
}

TEST_F(Steps, AreGatheredOnOneClock) {
  constexpr double late = 0.25;
  const schedule::Program& program = runtime_->program();
  TimedSteps steps(program, 3);
  execute(steps);
  const std::vector<Span> executed = execute(steps, late);
  execute(steps);
  const trace::StepSpans spans = steps.gather(1, MPI_COMM_WORLD);
  ASSERT_EQ(spans.size(), rank_ == 0 ? program.ranks.size() : 0);
  if (rank_ != 0)
    return;
  for (int r = 0; r < ranks_; ++r) {
    ASSERT_EQ(spans[r].size(), program.ranks[r].actions.size());
    for (const Span& s : spans[r])
      EXPECT_TRUE(0 <= s.ready && s.ready <= s.begin && s.begin <= s.end);
  }
  expect_alike(spans[0], executed);
  if (ranks_ == 1)
    return;
  EXPECT_GE(spans.back()[0].begin, 0.9 * late) << "later than the first rank's";
  const trace::StepAccount found = trace::account(program, spans);
  EXPECT_GE(found.length, 0.9 * late);
  for (const trace::RankTime& rank : found.ranks)
    EXPECT_NEAR(rank.compute + rank.exposed_total() + rank.idle, found.length, 1e-9);
}

// The slowest ranks of the steps took 5, 3 and 4 s, the fastest ones 0.1, 0.2 and 0.05 s.
TEST_F(Steps, AreCollectedWithTheirRanks) {
  TimedSteps steps(runtime_->program(), 3);
  const auto seconds = [&](int step, int rank) {
    return rank == ranks_ - 1 ? std::array{5.0, 3.0, 4.0}[step]
                              : std::array{0.1, 0.2, 0.05}[step] * (rank + 1);
  };
  for (int step = 0; step < 3; ++step) {
    runtime_->prepare();
    (void)runtime_->step();
    steps.add(runtime_->executor(), seconds(step, rank_));
  }
  for (const int executed : {3, 4}) {  // the second is not true
    CaseResult result;
    topology::MemoryTaken taken;
    taken.process_peak = 1000U + static_cast<unsigned>(rank_);
    for (const auto& [kind, name] : schedule::table_of<schedule::Memory>)
      taken.kokkos[engine::label_of(kind)] = runtime_->footprint().by_kind[index_of(kind)];
    collect(*runtime_, steps, executed, taken, false, MPI_COMM_WORLD, result);
    if (rank_ != 0)
      continue;
    const bool adds_up = executed == 3 || ranks_ == 1;
    EXPECT_EQ(result.status, adds_up ? Status::ok : Status::wrong) << result.reason;
    if (!adds_up) {
      EXPECT_THAT(result.reason, test::Says({"rank 0 sent ", "in 4 steps where"}));
    }
    EXPECT_EQ(
        result.bytes_source, kernels::on_host ? "counted" : runtime_->transport().bytes_source());
    EXPECT_EQ(result.accounted_step, 2) << "the median of the slowest ranks";
    ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(ranks_));
    if (ranks_ == 3) {
      EXPECT_EQ(result.ticks, 5) << "two forward, two backward, one to reduce the last gradient";
      EXPECT_EQ(result.idle_ticks, (std::vector{1, 1, 4}));
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int step = 0; step < 3; ++step)
        EXPECT_EQ(result.seconds[step][rank], seconds(step, rank));
      EXPECT_EQ(result.memory[rank].process_peak, 1000U + static_cast<unsigned>(rank));
    }
  }
}

/// Holds up kernels of a step, and takes the time around it with a clock of its own.
class SlowSteps final : public Instrument {
public:
  static constexpr std::chrono::milliseconds delay{10};

  SlowSteps() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback(
        [](const char* name, std::uint32_t, std::uint64_t*) {
          if (name != std::string_view("minitaw::adamw"))
            return;
          std::this_thread::sleep_for(delay);
          ++held_up_;
        });
  }

  ~SlowSteps() override { Kokkos::Tools::Experimental::set_callbacks(before_); }

  SlowSteps(const SlowSteps&) = delete;
  SlowSteps& operator=(const SlowSteps&) = delete;

  void before_step(int) override {
    held_up_ = 0;
    begin_ = MPI_Wtime();
  }

  void after_step(int) override {
    most.push_back(MPI_Wtime() - begin_);
    least.push_back(std::chrono::duration<double>(delay).count() * held_up_);
  }

  std::vector<double> least{}, most{};  ///< of each timed step, s

private:
  Kokkos::Tools::Experimental::EventSet before_;
  double begin_ = 0;
  static inline std::atomic<int> held_up_ = 0;
};

TEST_F(Steps, LastAsLongAsAClockOutsideSays) {
  const auto slow = std::make_shared<SlowSteps>();
  CaseRunner job = tests::job(engine::make_queues, {slow});
  const CaseResult result = job.run(case_of("ddp steps=4"), {}).result;
  if (rank_ != 0)
    return;
  ASSERT_EQ(result.status, Status::ok) << result.reason;
  ASSERT_EQ(std::tuple(result.seconds.size(), slow->least.size()), std::tuple(4, 4));
  std::vector<double> lengths;
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_GT(slow->least[s], 0);
    EXPECT_GE(result.seconds[s][0], slow->least[s]) << "less than its kernels, step " << s;
    EXPECT_LE(result.seconds[s][0], slow->most[s]) << "more than the step, step " << s;
    lengths.push_back(std::ranges::max(result.seconds[s]));
  }
  EXPECT_GE(result.accounted_length, slow->least[result.accounted_step]);
  const double accounted = lengths[result.accounted_step];
  std::ranges::sort(lengths);
  EXPECT_EQ(accounted, lengths[1]) << "the lower median";
}
}  // namespace
}  // namespace minitaw::harness
