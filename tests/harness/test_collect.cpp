// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>
#include "harness/case_runner.hpp"
#include "harness/cases.hpp"
#include "harness/collect.hpp"
#include "instruments/blame/core_load.hpp"

namespace minitaw::harness {
namespace {
using engine::host_seconds, engine::Runtime, engine::Span;

int world_rank() {
  return comm::mpi::rank_in(MPI_COMM_WORLD);
}

int world_size() {
  return comm::mpi::size_of(MPI_COMM_WORLD);
}

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
  const trace::StepSpans spans = last.gather(runtime_->program(), 1, MPI_COMM_WORLD);
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
  const trace::StepSpans spans = steps.gather(program, 1, MPI_COMM_WORLD);
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

using Labels = std::map<std::string, std::uint64_t>;

/// What a case takes that has allocated what was planned.
engine::MemoryTaken taken_as_planned(const schedule::Footprint& plan) {
  engine::MemoryTaken taken;
  for (std::size_t k = 0; k < plan.by_kind.size(); ++k)
    taken.kokkos[engine::label_of(static_cast<schedule::Memory>(k))] = plan.by_kind[k];
  return taken;
}

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

/// 60 MiB for a step, 10 of each kind.
schedule::Footprint sixty_mebibytes() {
  schedule::Footprint plan;
  plan.by_kind.fill(10 * mebibyte);
  plan.tokens = 10 * mebibyte;
  return plan;
}

TEST(Memory, BeyondThePlanIsNamedByItsLabel) {
  const schedule::Footprint plan = sixty_mebibytes();
  EXPECT_EQ(excess(plan, taken_as_planned(plan), 0), "");
  for (const std::string label : {"minitaw::gradients", "forgotten"}) {
    engine::MemoryTaken taken = taken_as_planned(plan);
    taken.kokkos["small"] = 5;
    taken.kokkos[label] += slack_of_kokkos() - 5;
    EXPECT_EQ(excess(plan, taken, 0), "") << "just within the slack";
    taken.kokkos["small"] += 1;
    const std::string bytes = std::to_string(slack_of_kokkos() - 5);
    EXPECT_THAT(excess(plan, taken, 0), ::testing::HasSubstr(bytes + " bytes of \"" + label + "\""))
        << label;
  }
  engine::MemoryTaken less = taken_as_planned(plan);
  less.kokkos["minitaw::optimiser"] -= 1;
  EXPECT_THAT(excess(plan, less, 0),
      ::testing::HasSubstr("of \"minitaw::optimiser\" where 10485760 were planned"));
}

/// A process that had 7 MiB before: 60 were planned, 3 are Kokkos's own, 5 are planned beside, 64
/// are slack.
TEST(Memory, BeyondThePlanIsOutsideOfKokkosWhereNoLabelHasIt) {
  const schedule::Footprint plan = sixty_mebibytes();
  engine::MemoryTaken taken = taken_as_planned(plan);
  taken.kokkos["Kokkos::scratch"] = mebibyte / 2;
  taken.process_begin = 7 * mebibyte;
  taken.process_peak = (7 + 60 + 5 + 64) * mebibyte + mebibyte / 2;
  EXPECT_EQ(excess(plan, taken, 5 * mebibyte), "");
  ++taken.process_peak;
  EXPECT_THAT(excess(plan, taken, 5 * mebibyte),
      ::testing::HasSubstr("the process has taken 72351745 bytes outside of Kokkos"));
  taken.process_begin = 0;
  EXPECT_EQ(excess(plan, taken, 5 * mebibyte), "") << "this kernel does not tell";

  taken.device_begin = mebibyte;
  taken.libraries =
      3 * mebibyte;  // beside 50 of the arena, half of one of Kokkos and 1 GiB of slack
  taken.device_used = (1 + 50 + 3 + 1024) * mebibyte + mebibyte / 2 + 1;
  EXPECT_THAT(excess(plan, taken, 0),
      ::testing::HasSubstr("the device has taken 1073741825 bytes outside of Kokkos"));
  EXPECT_EQ(excess(plan, taken, 0, 1), "") << "a communicator has 256 MiB";
}

TEST(Memory, WhatACaseLeavesBehindIsNamed) {
  EXPECT_EQ(leftover({{"a", slack_of_kokkos()}}, slack_of_process + 7, 7), "");
  EXPECT_THAT(
      leftover({{"a", slack_of_kokkos()}, {"b", 1}}, 0, 0), ::testing::HasSubstr("bytes of \"a\""));
  EXPECT_THAT(leftover({}, slack_of_process + 1, 0),
      ::testing::HasSubstr("holds 67108865 bytes more than before"));
}

TEST(Memory, OfARankIsKeptByKind) {
  const schedule::Footprint plan = sixty_mebibytes();
  engine::MemoryTaken taken = taken_as_planned(plan);
  taken.kokkos["minitaw::tokens"] = 11;
  taken.kokkos["x"] = 12;
  taken.kokkos["y"] = 13;
  taken.libraries = 14;
  taken.process_begin = 15;
  taken.process_peak = 16;
  taken.device_begin = 17;
  taken.device_used = 18;
  const RankMemory memory = memory_of(plan, taken);
  EXPECT_EQ(memory.planned.back(), 10 * mebibyte);
  EXPECT_EQ(memory.measured.back(), 11U);
  EXPECT_EQ(memory.measured.front(), 10 * mebibyte);
  EXPECT_EQ((std::array{memory.other,
                memory.libraries,
                memory.process_begin,
                memory.process_peak,
                memory.device_begin,
                memory.device_used}),
      (std::array<std::uint64_t, 6>{25, 14, 15, 16, 17, 18}));
}

/// The last rank alone has a text.
TEST(Memory, AnyRankFailsTheCase) {
  CaseResult result;
  fail_at_first(result, world_rank() + 1 == world_size() ? "too much" : "", MPI_COMM_WORLD);
  if (world_rank() != 0)
    return;
  EXPECT_EQ(result.status, Status::wrong);
  EXPECT_EQ(result.reason, fmt::format("rank {}: too much", world_size() - 1));
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
    engine::MemoryTaken taken = taken_as_planned(runtime_->footprint());
    taken.process_peak = 1000U + static_cast<unsigned>(rank_);
    collect(*runtime_,
        steps,
        executed,
        taken,
        false,
        {.nodes = topology::Groups({ranks})},
        MPI_COMM_WORLD,
        result);
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

/// Counts up; notes what it is asked.
class Counting final : public meters::Meter {
public:
  Counting() { name_ = "made up 1.2"; }

  DeviceSample read() override {
    asked += 'r';
    if (asked.size() == fails_at)
      fault_ = "it broke";
    const double value = 100.0 * world_rank() + static_cast<double>(asked.size());
    return {
        value, value + 0.25, value + 0.5, value + 0.75, static_cast<std::uint64_t>(world_rank())};
  }

  double energy() override {
    asked += 'e';
    return per_question * static_cast<double>(asked.size());
  }

  std::string asked;
  double per_question = 1;  ///< J
  std::size_t fails_at = 0;
};

TEST(StepMeter, EveryRankAndStepHasItsSample) {
  Counting counting;
  counting.per_question = 1 + world_rank();
  CaseResult result;
  for (int repetition = 0; repetition < 2; ++repetition) {
    StepMeter meter(counting);
    meter.begin();
    for (int step = 0; step < 3; ++step)
      meter.sample();
    meter.collect(MPI_COMM_WORLD, result.device);
  }
  EXPECT_EQ(counting.asked, "errreerrre");
  if (world_rank() != 0)
    return;
  EXPECT_EQ(result.device.source, "made up 1.2");
  ASSERT_EQ(result.device.samples.size(), 6U);
  ASSERT_EQ(result.device.energy.size(), 2U);
  for (int sample = 0; sample < 6; ++sample)
    for (int rank = 0; rank < world_size(); ++rank) {
      const DeviceSample& s = result.device.samples[sample][rank];
      const double clock = 100 * rank + 2 + sample + (sample > 2 ? 2 : 0);
      EXPECT_EQ(std::tuple(s.clock_mhz, s.memory_clock_mhz, s.temperature_c, s.power_w, s.throttle),
          std::tuple(
              clock, clock + 0.25, clock + 0.5, clock + 0.75, static_cast<std::uint64_t>(rank)));
      EXPECT_EQ(result.device.energy[sample / 3][rank], 4 * (1 + rank));
    }
}

/// Rank `who` has this meter, the others a good one.
CaseResult collected(int who, Counting& bad, bool none = false) {
  Counting good;
  meters::Meter nothing("no NVIDIA device");
  CaseResult result;
  for (int repetition = 0; repetition < 3; ++repetition) {
    StepMeter meter(who != world_rank() ? good : none && repetition == 1 ? nothing : bad);
    meter.begin();
    for (int step = 0; step < 2; ++step)
      meter.sample();
    meter.collect(MPI_COMM_WORLD, result.device);
  }
  return result;
}

void expect_unavailable(const CaseResult& result, const std::string& reason) {
  if (world_rank() != 0)
    return;
  EXPECT_TRUE(result.device.samples.empty() && result.device.energy.empty());
  const std::string who = world_size() == 1 ? "" : fmt::format("rank {}: ", world_size() - 1);
  EXPECT_EQ(result.device.source, fmt::format("unavailable: {}{}", who, reason));
}

TEST(StepMeter, OneRankThatFailsInTheMiddleOrHasNoneTakesTheCaseWithIt) {
  Counting bad, good;
  bad.fails_at = 7;  // in the second repetition
  expect_unavailable(collected(world_size() - 1, bad), "it broke");
  expect_unavailable(collected(world_size() - 1, good, true), "no NVIDIA device");
}

/// The first rank has a node of its own, the others share one, whose first rank reads. A node has
/// no part in the case.
TEST(StepMeter, OfANodeGivesItsRanksEqualParts) {
  Counting counting;
  meters::Meter none("read by another rank");
  counting.per_question = 1 + world_rank();
  const int others = world_size() - 1;
  StepMeter meter(world_rank() < 2 ? counting : none,
      topology::Groups(others > 0 ? std::vector{1, others, 1} : std::vector{1}));
  Readings readings;
  meter.begin();
  meter.sample();
  meter.collect(MPI_COMM_WORLD, readings);
  if (world_rank() != 0)
    return;
  for (int rank = 0; rank < world_size(); ++rank) {
    const int first = rank == 0 ? 0 : 1, parts = rank == 0 ? 1 : others;
    EXPECT_NEAR(readings.energy.at(0)[rank], 2.0 * (1 + first) / parts, 1e-12);
    EXPECT_NEAR(readings.samples.at(0)[rank].power_w, (2.75 + 100 * first) / parts, 1e-12);
  }
}

TEST(StepMeter, EnergyThatIsNotCountedIsLeftOut) {
  for (const double per_question : {std::nan(""), 0.0}) {  // none is told; the counter stands still
    Counting without;
    without.per_question = per_question;
    const CaseResult result = collected(world_size() - 1, without);
    if (world_rank() != 0)
      continue;
    EXPECT_EQ(result.device.samples.size(), 6U);
    EXPECT_EQ(result.device.energy.size(), world_size() == 1 && std::isnan(per_question) ? 0U : 3U);
    for (const std::vector<double>& ranks : result.device.energy) {
      EXPECT_TRUE(world_size() == 1 || ranks.front() > 0);
      EXPECT_TRUE(std::isnan(ranks.back()));
    }
  }
}

TEST(StepMeter, OfACaseIsReadAfterItsTimedSteps) {
  const auto meter = std::make_shared<Counting>();
  Limits limits;
  std::vector<std::string> times;
  limits.stop = [&] {
    meter->asked += '|';  // behind every step
    times.push_back(utc_now(true));
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    return StopReason::no;
  };
  Case c = tests::small_case("ddp", topology::Groups::equal(world_size(), 1), 2, 1);
  c.warmup = 2;
  c.steps = 3;
  const auto node =
      world_rank() == 0 ? std::make_shared<Counting>() : std::make_shared<meters::Meter>();
  const CaseResult result = tests::job(meter, engine::make_queues, node).run(c, limits).result;
  EXPECT_EQ(meter->asked, "||er|r|r|e") << "two steps of warm-up";
  if (world_rank() != 0)
    return;
  for (int rank = 0; rank < world_size(); ++rank) {  // equal parts of what rank 0 has read
    EXPECT_NEAR(result.node.energy.at(0)[rank], 4.0 / world_size(), 1e-12);
    EXPECT_NEAR(result.node.samples.at(0)[rank].power_w, 2.75 / world_size(), 1e-12);
  }
  EXPECT_THAT(
      result.begun, testing::ElementsAre(testing::MatchesRegex("2.*T..:..:..[.][0-9][0-9][0-9]Z")));
  EXPECT_TRUE(
      times[1] < result.begun[0] && result.begun[0] <= times[2] && times[4] < result.ended.at(0));
}

/// A second on these cores: 5 % and two hundredths of a second of each core are allowed.
TEST(CoreLoad, OthersAreThoseWhoAreNoRankOfTheCase) {
  using topology::RankPlace;
  using Uses = std::vector<rates::CoreUse>;
  const std::vector<RankPlace> alone = {{0, {0}}, {0, {1, 2}}, {1, {0}}};
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1.06, 1}, {1, 2.13, 2}, {1, 0.9, 1}}), "");
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1, 1}, {1, 2, 1.8}, {1, 1, 0.5}}),
      "other programs take 50 % of the cores of rank 2");
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1, 1}, {1, 2, 1.8}, {1, 1, 1}}),
      "other programs take 10 % of the cores of rank 1");
  EXPECT_EQ(taken_by_others(alone, Uses{{1, 1, 0.92}, {1, 2, 2}, {1, 1, 1}}),
      "other programs take 8 % of the cores of rank 0");
  EXPECT_EQ(taken_by_others(alone, Uses{{0.1, 0.1, 0.08}, {1, 2, 2}, {1, 1, 1}}), "")
      << "two ticks of a clock";
  EXPECT_EQ(taken_by_others(alone, Uses{{1, NAN, 0}, {1, NAN, 0}, {1, NAN, 0}}), "") << "not known";
  const std::vector<RankPlace> together = {{0, {0, 1}}, {0, {0, 1}}};
  EXPECT_EQ(taken_by_others(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 1.0}}), "");
  EXPECT_EQ(taken_by_others(together, Uses{{1, 1.9, 0.9}, {1, 1.9, 0.4}}),
      "other programs take 30 % of the cores of rank 0");
  EXPECT_EQ(taken_by_others({}, {}), "");
}

/// The core of rank 1 is busy for 9 s more after each step, says the file.
TEST(CoreLoad, NobodyIsNamedBesideOtherPrograms) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD), ranks = comm::mpi::size_of(MPI_COMM_WORLD);
  if (ranks == 1)
    GTEST_SKIP() << "nobody is named";
  const std::string stat = fmt::format("stat-{}", rank);
  int busy = 0;
  const auto write = [&] {
    std::ofstream(stat) << fmt::format("cpu{} {} 0 0 0 0 0 0 0 0 0\n", rank, busy);
  };
  std::vector<topology::RankPlace> places;
  for (int r = 0; r < ranks; ++r)
    places.push_back({0, {r}, 1});
  for (const bool loaded : {true, false}) {
    write();
    CaseRunner job(MPI_COMM_WORLD, {.places = places, .stat = stat});
    Case c = tests::small_case("ddp", topology::Groups({ranks}), 2, 1);
    c.steps = 3;
    Limits limits;
    limits.stop = [&] {
      if (loaded && rank == 1)
        busy += 9 * static_cast<int>(sysconf(_SC_CLK_TCK));
      write();
      return StopReason::no;
    };
    const CaseResult result = job.run(c, limits).result;
    if (rank > 0)
      continue;
    const bool told =
        result.blame.text.find(" % of the cores of rank 1; minitaw screen") != std::string::npos;
    EXPECT_EQ(told, loaded) << result.blame.text;
  }
  std::filesystem::remove(stat);
}
}  // namespace
}  // namespace minitaw::harness
