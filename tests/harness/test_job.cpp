// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include "engine/simulated_stream.hpp"
#include "harness/case_runner.hpp"
#include "harness/cases.hpp"
#include "record/row.hpp"
#include "schedule/example.hpp"
#include "this_run.hpp"

namespace minitaw::harness {
namespace {
using engine::peak_memory, engine::Stalled, engine::StepOptions, schedule::Action, schedule::Kind;
using schedule::Operand, schedule::Program, schedule::SlotClass, tests::random_groups,
    tests::small_case;

/// The verdict is rank 0's; every rank asserts the same.
bool passes(const Check& check, const Tolerance& tolerance) {
  int ok = check.passes(tolerance) ? 1 : 0;
  MPI_Bcast(&ok, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return ok == 1;
}

bool passes(CaseRunner& job, const Case& c, int steps) {
  const Reference reference = job.rank() == 0 ? serial_reference(c, steps) : Reference{};
  const Check check = job.verify(c, steps, reference);
  Case executed = c;
  executed.steps = steps;
  const Tolerance tolerance = serial_tolerance(executed);
  if (job.rank() == 0 && !check.passes(tolerance))
    fmt::print("  {}: {}\n", c.schedule, check.failure(tolerance));
  return passes(check, tolerance);
}

/// Random groups that the schedule takes; equal ones in the end.
Case random_case(const std::string& name, int ranks, int per_rank, std::mt19937& random) {
  const int layers = ranks + static_cast<int>(random() % (ranks + 2));
  const Case c = small_case(name, random_groups(ranks, random), layers, per_rank);
  const int equal = ranks % 2 == 0 && random() % 2 == 0 ? 2 : ranks;
  return tests::possible(c)
             ? c
             : small_case(name, topology::Groups::equal(ranks, equal), layers, per_rank);
}

class Job : public ::testing::Test {
protected:
  void reproduce_the_reference(
      const std::vector<std::string>& schedules, int trials, CaseRunner& job) {
    std::mt19937 random(5);
    for (const std::string& name : schedules)
      for (int trial = 0; trial < trials; ++trial)
        expect_right(
            random_case(name, job.ranks(), 1 + static_cast<int>(random() % 3), random), job);
  }

  void expect_right(const Case& c, CaseRunner& job) const {
    SCOPED_TRACE(fmt::format("{} groups {} layers {} S {} V {} M {}",
        c.schedule,
        c.groups.text(),
        c.shape.layers,
        c.shape.seq,
        c.shape.vocab,
        c.micro_batches));
    EXPECT_TRUE(passes(job, c, steps_));
  }

  void expect_right(const Case& c) { expect_right(c, job_); }

  [[nodiscard]] Case in_one_group(const std::string& schedule, int per_rank) const {
    return small_case(schedule, topology::Groups({job_.ranks()}), job_.ranks(), per_rank);
  }

  CaseRunner job_ = tests::job();
  int steps_ = job_.ranks() <= 4 ? 3 : 2;  ///< more ranks share few cores
};

TEST_F(Job, EveryScheduleReproducesTheSerialReference) {
  reproduce_the_reference(tests::every_schedule(), job_.ranks() < 3 ? 2 : 1, job_);
}

/// Of tests/schedule/data, on as many ranks as they are for.
TEST_F(Job, PipelinesOfPyTorchReproduceIt) {
  for (const auto& [file, micro_batches] : {std::pair("dualpipev_2x5", 5),
           std::pair("interleaved_zero_bubble_2x4", 4),
           std::pair("zbv_3x6", 6),
           std::pair("interleaved_1f1b_3x6_comms", 6)}) {
    Case c = small_case(
        fmt::format("csv:file={}.csv", file), topology::Groups::equal(job_.ranks(), 1), 7, 1);
    c.folder = MINITAW_DATA;
    c.micro_batches = micro_batches;
    if (schedule::possible(request_of(c)))
      expect_right(c);
  }
}

// One thread submits everything ahead of the work, as on a device whose transport works on streams.
TEST_F(Job, SchedulesReproduceItOnStreams) {
  CaseRunner on_streams = tests::job(engine::tests::simulated_streams);
  reproduce_the_reference(tests::some_schedules(job_.ranks(), 0), 1, on_streams);
}

TEST_F(Job, Bf16ReproducesItWithinItsRounding) {
  std::mt19937 random(8);
  for (const std::string& name : tests::some_schedules(job_.ranks(), 1)) {
    Case c = random_case(name, job_.ranks(), 2, random);
    c.shape.dtype = model::Dtype::bf16;
    for (const bool wide : {false, true}) {
      c.shape.fp32_gradients = wide;
      expect_right(c);
    }
  }
}

TEST_F(Job, CopiesOfEveryScheduleReproduceIt) {
  if (job_.ranks() % 2 != 0)
    GTEST_SKIP() << "of two equal copies";
  for (const std::string& name : tests::some_schedules(job_.ranks(), 2)) {
    Case c = small_case(name, topology::Groups::equal(job_.ranks(), 2), job_.ranks() / 2 + 1, 2);
    c.replicas = 2;
    if (schedule::entry_of(schedule::parse_spec(name).name).replicable)
      expect_right(c);
  }
}

/// Ranks 0, 1, 2, ... have 1, 3, 2, 1, 3, ... sequences per micro-batch.
Case with_own_sizes(Case c) {
  for (int r = 0; r < c.ranks; ++r)
    c.micro_batch_per_rank.push_back(std::array{1, 3, 2}[r % 3]);
  c.shape.micro_batch = 3;
  return c;
}

TEST_F(Job, RanksWithTheirOwnMicroBatchSizesReproduceTheReference) {
  std::mt19937 random(21);
  for (const std::string& name : tests::some_schedules(job_.ranks(), 0)) {
    if (schedule::entry_of(schedule::parse_spec(name).name).passes_activations)
      continue;
    expect_right(with_own_sizes(random_case(name, job_.ranks(), 2, random)));
  }
}

TEST_F(Job, CountedBytesAndMeasuredMemoryEqualThePlan) {
  std::mt19937 random(3);
  for (const std::string& name : tests::some_schedules(job_.ranks(), 1)) {
    Case c = random_case(name, job_.ranks(), 2, random);
    c.attention = "portable";
    c.clip_norm = 0.5;
    const bool own_sizes = !schedule::entry_of(schedule::parse_spec(name).name).passes_activations;
    if (own_sizes)
      c = with_own_sizes(c);
    SCOPED_TRACE(fmt::format("{} groups {}", c.schedule, c.groups.text()));
    c.steps = 3;
    c.warmup = 1;
    const CaseResult result = job_.run(c, {}).result;
    if (job_.rank() != 0)
      continue;
    EXPECT_EQ(result.status, Status::ok) << result.reason;
    EXPECT_EQ(result.counted_bytes, result.planned_bytes);
    ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(job_.ranks()));
    const Program program = schedule::build_valid(request_of(c));
    const auto planned = schedule::memory(
        program, model::make_layout(c.shape, schedule::cut_of(program)), c.micro_batch_per_rank);
    for (std::size_t r = 0; r < planned.size(); ++r) {
      const RankMemory& memory = result.memory[r];
      for (std::size_t k = 0; k < schedule::memory_kinds; ++k) {
        const std::uint64_t bytes = planned[r].by_kind[k];
        const bool has_tokens = static_cast<schedule::Memory>(k) == schedule::Memory::tokens;
        EXPECT_EQ(memory.planned[k], bytes) << "rank " << r << " kind " << k;
        EXPECT_EQ(memory.measured[k],
            bytes == 0 || has_tokens ? bytes : bytes + engine::Arena::alignment);
      }
    }
    EXPECT_LE(result.memory[0].process_peak, peak_memory() / 15 * 16)
        << "the kernel counts in batches";
    EXPECT_GE(result.memory[0].process_peak, peak_memory() / 2)
        << "hardly anything was taken behind the case";
    const std::vector<double> losses = serial_reference(c, 4).losses;
    ASSERT_EQ(result.losses.size(), losses.size());
    for (std::size_t s = 0; s < losses.size(); ++s)
      EXPECT_NEAR(result.losses[s], losses[s], 1e-5) << s;
    EXPECT_EQ(result.seconds.size(), 3U);
    EXPECT_EQ(result.attention, "portable") << "which is not what would be chosen";
    EXPECT_EQ(result.transport.substr(0, 3),
        job_.ranks() == 1  ? "non"
        : kernels::on_host ? "mpi"
                           : "ncc");
    EXPECT_GE(result.max_gradient_error, 0) << "a case this small must be checked";
  }
}

double length(const std::vector<NamedTensor>& gradient) {
  double squares = 0;
  for (const NamedTensor& tensor : gradient)
    for (const double v : tensor.values)
      squares += v * v;
  return std::sqrt(squares);
}

/// Of the first and the last gradient one is longer than the limit: AdamW hides a factor that all
/// share.
TEST_F(Job, ClippedStepsReproduceTheSerialReference) {
  std::mt19937 random(4);
  for (const std::string& name : tests::some_schedules(std::max(3, job_.ranks()), 2)) {
    Case c = random_case(name, job_.ranks(), 2, random);
    SCOPED_TRACE(fmt::format("{} groups {}", name, c.groups.text()));
    const Reference open = serial_reference(c, 3);
    c.clip_norm = (length(open.gradients) + length(open.later)) / 2;
    EXPECT_TRUE(passes(job_, c, 3));
    EXPECT_FALSE(compare(serial_reference(c, 3), open).passes(serial_tolerance(c)))
        << "clipping tells";
  }
}

TEST_F(Job, RanksBeyondTheCaseWait) {
  if (job_.ranks() < 2)
    GTEST_SKIP() << "of several ranks";
  EXPECT_TRUE(passes(
      job_, small_case("tawpipe", topology::Groups({job_.ranks() - 1}), job_.ranks(), 1), 1));
}

TEST_F(Job, TheExampleOfThePageReproducesTheSerialReference) {
  Case c = small_case("ddp", topology::Groups({job_.ranks()}), job_.ranks() + 1, 2);
  const schedule::Request request{{"lend", {}}, c.groups, c.micro_batches, c.shape.layers, 1};
  const Reference reference = job_.rank() == 0 ? serial_reference(c, steps_) : Reference{};
  const Program program = schedule::schedules::lend().build(request);
  EXPECT_TRUE(passes(job_.verify(c, steps_, reference, &program), serial_tolerance(c)));
}

/// Of 300 rows, kernels make partial sums of at most 256 where 300 are planned.
TEST_F(Job, CasesOfManyTokensReproduceIt) {
  if (job_.ranks() > 2)
    GTEST_SKIP() << "it is the same on more ranks, which share few cores";
  for (const std::string name : {"ddp", "zb1"}) {
    Case c = in_one_group(job_.ranks() == 1 ? "serial" : name, 1);
    c.shape.seq = 150;
    expect_right(c);
  }
}

/// A replay fills memory, too: a table that is made before would be lost.
TEST_F(Job, MemoryThatBeginsWithAPatternChangesNoLoss) {
  const Case c = in_one_group(job_.ranks() == 1 ? "serial" : "ddp", 1);
  const auto loss_of = [&](std::optional<std::byte> fill) {
    StepOptions options;
    options.fill = fill;
    const auto runtime = tests::runtime_by_mpi(c, schedule::build_valid(request_of(c)), options);
    runtime->prepare();
    (void)runtime->step();
    return runtime->loss();
  };
  const double loss = loss_of({});
  EXPECT_EQ(loss_of(std::byte{0}), loss);
  EXPECT_EQ(loss_of(std::byte{0xff}), loss);
}

/// A job in which rank `where` takes 100 MiB while it prepares a case, and gives it back if
/// `returns`.
struct Taker {
  static constexpr std::size_t bytes = 100U << 20;
  bool by_kokkos, returns;
  int where;
  Kokkos::View<char*, Kokkos::HostSpace> of_kokkos{};
  std::vector<char> of_process{};

  CaseRunner job() {
    return tests::job([this](const engine::QueueOptions& options) {
      if (comm::mpi::rank_in(MPI_COMM_WORLD) == where)
        take();
      return engine::make_queues(options);
    });
  }

  void take() {
    if (by_kokkos)
      of_kokkos = Kokkos::View<char*, Kokkos::HostSpace>("forgotten", bytes);
    else
      of_process.assign(bytes, 1);
    if (!returns)
      return;
    of_kokkos = {};
    of_process = {};
    of_process.shrink_to_fit();
  }
};

TEST_F(Job, MemoryThatWasNotPlannedMakesACaseWrong) {
  if (!kernels::on_host || test::sanitized)
    GTEST_SKIP() << "of the process alone";
  if (job_.ranks() > 3)
    GTEST_SKIP() << "it is the same on more ranks, which share few cores";
  const Case c = in_one_group(job_.ranks() == 1 ? "serial" : "ddp", 1);
  for (const bool by_kokkos : {true, false})
    for (const bool returns : {true, false}) {
      Taker taker{by_kokkos, returns, job_.ranks() - 1};
      CaseRunner runner = taker.job();
      const CaseResult result = runner.run(c, {.check = false}).result;
      const CaseResult next = job_.run(c, {}).result;
      if (job_.rank() != 0)
        continue;
      const std::string who = fmt::format("rank {}: ", job_.ranks() - 1);
      EXPECT_EQ(result.status, Status::wrong);
      EXPECT_THAT(result.reason, ::testing::StartsWith(who));
      EXPECT_THAT(
          result.reason, ::testing::HasSubstr(by_kokkos ? "\"forgotten\"" : "outside of Kokkos"));
      EXPECT_EQ(next.status, Status::ok) << "the next case is not to blame: " << next.reason;
    }
}

/// The last rank has the core of the first one.
class Verification : public Job {
protected:
  void SetUp() override {
    if (job_.ranks() > 3)
      GTEST_SKIP() << "it is the same on more ranks, which share few cores";
  }
};

/// A job whose ranks from `first` on leave out those computations of a case that `which` names.
CaseRunner job_without(const Case& c, int first, const std::function<bool(const Action&)>& which) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD);
  const Program program = schedule::build_valid(request_of(c));
  const std::vector<int> units = actions_of(program.ranks[rank], schedule::Lane::compute);
  engine::tests::Faults faults;
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit)
    if (rank >= first && which(program.ranks[rank].actions[units[unit]]))
      faults.left_out.insert(unit);
  return tests::job(engine::tests::faulty_queues(faults));
}

TEST_F(Verification, SeesATensorThatIsNotUpdated) {
  const Case c =
      small_case(job_.ranks() == 1 ? "serial" : "ddp", topology::Groups({job_.ranks()}), 3, 1);
  for (const bool ends : {false, true}) {
    CaseRunner job = job_without(c, 0, [&](const Action& a) {
      const bool of_ends = a.payload == schedule::Payload::embeddings;
      return a.kind == Kind::update && (ends ? of_ends : !of_ends && a.shard == 0);
    });
    const Reference reference = job_.rank() == 0 ? serial_reference(c, 1) : Reference{};
    const Check check = job.verify(c, 1, reference);
    EXPECT_FALSE(passes(check, serial_tolerance(c)));
    if (job_.rank() != 0)
      continue;
    EXPECT_LE(check.first.gradient.worst, serial_tolerance(c).first.gradient)
        << "its gradients are right";
    EXPECT_NE(check.weights.tensor.starts_with("layers."), ends)
        << check.failure(serial_tolerance(c));
  }
}

/// The last rank, of the second replica, computes no loss, or no gradient of the embedding, for its
/// second micro-batch.
TEST_F(Verification, ARunThatErrsInItsFirstStepIsWrong) {
  Case c = in_one_group(job_.ranks() == 1 ? "serial" : job_.ranks() == 2 ? "fsdp" : "ddp", 2);
  if (job_.ranks() == 2)
    c.groups = topology::Groups({1, 1}), c.replicas = 2;
  for (const auto& [kind, what] : {std::pair{Kind::loss, "the first loss"},
           {Kind::embed_backward, "the gradient of embedding"}}) {
    CaseRunner job = job_without(c, job_.ranks() - 1, [&](const Action& a) {
      return a.kind == kind && a.micro_batch == c.micro_batches - 1;
    });
    const CaseResult result = job.run(c, {}).result;
    const Check check = job.verify(c, 1, job_.rank() == 0 ? serial_reference(c, 1) : Reference{});
    if (job_.rank() != 0)
      continue;
    EXPECT_TRUE(result.status == Status::wrong && result.reason.starts_with(what)) << result.reason;
    EXPECT_GT(check.first.gradient.worst, 0.01);
    EXPECT_NEAR(
        result.max_gradient_error, check.first.gradient.worst, 1e-3 * check.first.gradient.worst);
    EXPECT_NEAR(result.max_loss_error, check.first.loss, 1e-6);
    EXPECT_EQ(check.first.loss > 0.01, kind == Kind::loss);
  }
}

/// Every kernel of the last rank says a word to its own rank.
TEST_F(Verification, OfARunThatSendsWhatIsNotCountedFails) {
  namespace tools = Kokkos::Tools::Experimental;
  const Case c = in_one_group(job_.ranks() == 1 ? "serial" : "ddp", 1);
  const Reference reference = job_.rank() == 0 ? serial_reference(c, 1) : Reference{};
  const tools::EventSet before = tools::get_callbacks();
  if (job_.rank() + 1 == job_.ranks())
    tools::set_begin_parallel_for_callback([](const char*, std::uint32_t, std::uint64_t*) {
      double word = 0;
      MPI_Bcast(&word, 1, MPI_DOUBLE, 0, MPI_COMM_SELF);
    });
  const Check check = job_.verify(c, 1, reference);
  const CaseResult result = job_.run(c, {}).result;
  tools::set_callbacks(before);
  if (job_.rank() != 0)
    return;
  const std::string who = job_.ranks() == 1 ? "" : fmt::format("rank {}: ", job_.ranks() - 1);
  EXPECT_EQ(result.reason, fmt::format("a step sends what is not counted: {}MPI_Bcast", who));
  EXPECT_EQ(check.failure(serial_tolerance(c)), result.reason);
}

// By hand, at most 1e11 FLOP: of two blocks 6 (2 x 1728 + 5184 + 696) of weights a token, and 6 x
// 24 x 2 S of attention.
TEST_F(Verification, OnlyACheapRunIsChecked) {
  for (const auto& [seq, micro_batches, is_cheap] :
      {std::tuple{13, 62000, true}, {13, 66000, false}, {12500, 1, true}, {13500, 1, false}}) {
    Case c = small_case("ddp", topology::Groups({1}), 2, micro_batches);
    c.shape.seq = seq;
    EXPECT_EQ(CaseRunner::has_time_to_check(c), is_cheap) << seq;
  }
}

TEST_F(Verification, ARunWhoseLossIsNotFiniteIsWrong) {
  Case c = in_one_group(job_.ranks() == 1 ? "serial" : "ddp", 1);
  c.steps = 3;
  c.warmup = 1;
  c.learning_rate = std::nan("");
  const CaseResult result = job_.run(c, {}).result;
  if (job_.rank() != 0)
    return;
  EXPECT_TRUE(std::isfinite(result.losses.at(0)) && std::isnan(result.losses.at(1)));
  EXPECT_EQ(
      record::make_row(result).text("verdict"), "INVALID: wrong: the loss of step 2 is not finite");
}

TEST_F(Job, TheProcessPeakIsThatOfItsCase) {
  if (!kernels::on_host || test::sanitized)
    GTEST_SKIP() << "of the process alone";
  Case small = in_one_group(job_.ranks() == 1 ? "serial" : "ddp", 1), large = small;
  large.shape.vocab = 100000;  // 14 MB of weights and as many of each moment and of the gradient
  for (Case* c : {&small, &large})
    c->steps = 1;
  const auto peak = [&](const Case& c) {
    const CaseResult result = job_.run(c, {.check = false}).result;
    return job_.rank() == 0 ? result.memory.at(0).process_peak : 0;
  };
  const std::uint64_t before = peak(small), most = peak(large), after = peak(small);
  if (job_.rank() != 0)
    return;
  constexpr std::uint64_t larger = 4 * 2 * 4 * 24 * std::uint64_t{100000 - 29};
  EXPECT_GE(most, before + larger / 2);
  engine::reset_peak_memory();
  if (peak_memory() > before + larger / 4)
    GTEST_SKIP() << "this kernel does not let a process start a new peak";
  EXPECT_LT(after, before + larger / 4);
}

/// One key: queries and keys have no gradient but rounding noise; one token: loss and gradients are
/// zero; both.
TEST_F(Verification, TakesCasesWithoutAnyGradientForRight) {
  for (const auto& [seq, vocab, turn] : {std::tuple{1, 29, 0}, {13, 1, 1}, {1, 1, 2}})
    for (const std::string& name : tests::some_schedules(job_.ranks() + 5, turn)) {
      Case c = small_case(name, topology::Groups({job_.ranks()}), job_.ranks() + 1, 2);
      c.shape.seq = seq;
      c.shape.vocab = vocab;
      if (tests::possible(c))
        expect_right(c);
    }
}

/// Rank 1 never sends its last gradient: the others hang, and must say in what.
void lose_a_message(Program& program) {
  for (Action& a : program.ranks[1].actions)
    if (a.kind == Kind::send && a.payload == schedule::Payload::gradient) {
      a.kind = Kind::accumulate;  // something harmless in place of the send, so that counts stay
      a[Operand::destination] = a[Operand::source];
      return;
    }
  FAIL() << "no gradient is sent";
}

TEST_F(Job, AStalledStepNamesThePendingActionsAndEnds) {
  if (job_.ranks() != 2 || minitaw::test::sanitized)
    GTEST_SKIP() << "of two ranks; it leaves requests to MPI";
  const int rank = job_.rank();
  std::mutex mutex;
  std::string said;
  StepOptions options;
  options.stall_limit = std::chrono::seconds(3);  // a crowded machine stops a rank for shorter
  options.on_stall = [&](const std::string& report) {
    const std::scoped_lock lock(mutex);
    said = report;
    return "";
  };
  const Case c = small_case("tawpipe", topology::Groups({1, 1}), 2, 1);
  Program program = schedule::build_valid(request_of(c));
  lose_a_message(program);
  const auto runtime = tests::runtime_by_mpi(c, std::move(program), options);
  runtime->prepare();
  const std::string reason = minitaw::test::refusal_of<Stalled>([&] { (void)runtime->step(); });
  EXPECT_TRUE(reason.starts_with(fmt::format("rank {}: no lane has moved for 3 s", rank)))
      << reason;
  EXPECT_EQ(reason.find('\n'), std::string::npos) << reason;
  const std::scoped_lock lock(mutex);
  EXPECT_NE(said.find(fmt::format("rank {}", rank)), std::string::npos) << said;
  if (rank == 0) {
    EXPECT_NE(said.find("\n  gradients_recv in tick 5 recv G0 c0 <- r1"), std::string::npos)
        << said;
    EXPECT_NE(reason.find(", gradients_recv in tick 5 recv G0 c0 <- r1"), std::string::npos)
        << reason;
  }
}

TEST_F(Job, AnInputErrorOnOneRankIsOneOnAll) {
  Case c = in_one_group("tawpipe", 1);
  c.data = job_.rank() == 0 ? "synthetic" : "/nonexistent/text";
  if (job_.ranks() < 2)
    GTEST_SKIP() << "of several ranks";
  EXPECT_THROW(
      (void)job_.verify(c, 1, job_.rank() == 0 ? serial_reference(c, 1) : Reference{}), InputError);
  const CaseResult result = job_.run(c, {}).result;
  EXPECT_EQ(result.status, Status::error);
  EXPECT_NE(result.reason.find("/nonexistent/text"), std::string::npos) << result.reason;
}

TEST(Agree, ThrowsWhatTheLowestRankThatFailsHasThrown) {
  using minitaw::test::refusal_of;
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD),
            first = std::min(1, comm::mpi::size_of(MPI_COMM_WORLD) - 1);
  const auto agreed = [&](const auto& error) {
    return [&] {
      agree(MPI_COMM_WORLD, [&] {
        if (rank == first)
          throw error;
        if (rank > first)
          throw std::logic_error("of another rank");
      });
    };
  };
  EXPECT_EQ(refusal_of(agreed(InputError("no such file"))), "no such file");
  EXPECT_EQ(refusal_of<AgreedOutOfMemory>(agreed(std::bad_alloc())), "out of memory");
  for (const char* words :
      {"Host memory space failed to allocate 3 TiB", "cudaMalloc: out of memory"})
    EXPECT_EQ(refusal_of<AgreedOutOfMemory>(agreed(std::runtime_error(words))), words);
  EXPECT_EQ(refusal_of<AgreedError>(agreed(std::runtime_error("it broke"))), "it broke");
}

TEST_F(Job, StopsAfterAStepForTheGravestReasonOfAnyRank) {
  using enum StopReason;
  const int ranks = std::max(1, job_.ranks() - 1);  // one waits
  Case c = small_case(ranks == 1 ? "serial" : "ddp", topology::Groups({ranks}), 2, 1);
  c.warmup = 1;
  c.steps = 2;
  int asked = 0;
  const auto stopped = [&](int step, StopReason first, StopReason last, double whole = 1e6) {
    const StopReason mine = job_.rank() == ranks - 1 ? last : job_.rank() == 0 ? first : no;
    asked = 0;
    const auto stop = [&] { return ++asked == step ? mine : no; };
    return job_.run(c, {.whole = Limits::Seconds(whole), .stop = stop}).stopped;
  };
  EXPECT_EQ(stopped(2, no, case_limit), case_limit);
  EXPECT_EQ(asked, job_.rank() < ranks ? 2 : 0);
  EXPECT_EQ(stopped(1, case_limit, time_limit), time_limit);
  EXPECT_EQ(stopped(1, time_limit, signal), signal);
  EXPECT_EQ(stopped(3, signal, signal), no) << "it is over";
  EXPECT_EQ(stopped(1, no, no, 0), case_limit);
  EXPECT_EQ(asked, job_.rank() < ranks ? 1 : 0);
  EXPECT_EQ(stopped(1, no, time_limit, 0), time_limit);
}

TEST_F(Job, ARankOutsideOfACaseWaitsForAllOfIt) {
  if (job_.ranks() != 2)
    GTEST_SKIP() << "of two ranks";
  Case c = small_case("serial", topology::Groups({1}), 2, 1);
  c.steps = 5;
  const auto stop = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    return StopReason::no;
  };
  using Seconds = Limits::Seconds;  // the case lasts longer than the rank waits for a step
  EXPECT_EQ(job_.run(c, {.stall_limit = Seconds(3), .whole = Seconds(60), .stop = stop}).stopped,
      StopReason::no);
}
}  // namespace
}  // namespace minitaw::harness
