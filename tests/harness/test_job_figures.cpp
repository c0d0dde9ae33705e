// SPDX-License-Identifier: BSD-3-Clause
#include <set>
#include "fixtures.hpp"
#include "harness/job_test.hpp"
#include "this_run.hpp"

namespace minitaw::harness {
namespace {
using tests::Job, tests::JobOfFewRanks;
using topology::peak_memory;

/// Bytes: on a device, 16 MiB of pinned memory for each lane that communicates.
std::uint64_t pinned_of(const schedule::RankProgram& rank) {
  std::set<schedule::Lane> lanes;
  for (const schedule::Action& action : rank.actions)
    if (is_communication(action.kind))
      lanes.insert(action.lane);
  return kernels::on_host ? 0 : std::uint64_t{lanes.size()} << 24;
}

TEST_F(Job, CountedBytesAndMeasuredMemoryEqualThePlan) {
  std::mt19937 random(3);
  for (const std::string& name : tests::some_schedules(job_.ranks(), 1)) {
    Case c = random_case(name, 2, random);
    c.attention = "portable";
    c.clip_norm = 0.5;
    c.shape.micro_batch = 3;
    SCOPED_TRACE(fmt::format("{} groups {}", c.schedule, c.groups.text()));
    c.steps = 3;
    c.warmup = 1;
    const CaseResult result = job_.run(c, {}).result;
    if (job_.rank() != 0)
      continue;
    EXPECT_EQ(result.status, Status::ok) << result.reason;
    EXPECT_EQ(
        list_of(result.bytes, &LinkBytes::counted), list_of(result.bytes, &LinkBytes::planned));
    ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(job_.ranks()));
    const schedule::Program program = schedule::build_valid(request_of(c));
    const auto planned =
        schedule::memory(program, model::make_layout(c.shape, schedule::cut_of(program)));
    for (std::size_t r = 0; r < planned.size(); ++r) {
      const RankMemory& memory = result.memory[r];
      for (std::size_t k = 0; k < schedule::memory_kinds; ++k) {
        const std::uint64_t bytes = planned[r].by_kind[k];
        const auto kind = static_cast<schedule::Memory>(k);
        const bool has_tokens = kind == schedule::Memory::tokens;
        const std::uint64_t pinned =
            kind == schedule::Memory::buffers ? pinned_of(program.ranks[r]) : 0;
        EXPECT_EQ(memory.planned[k], bytes + pinned) << "rank " << r << " kind " << k;
        EXPECT_EQ(memory.measured[k],
            (bytes == 0 || has_tokens ? bytes : bytes + engine::Arena::alignment) + pinned);
      }
    }
    EXPECT_LE(result.memory[0].process_peak, peak_memory() / 15 * 16)
        << "the kernel counts in batches";
    EXPECT_GE(result.memory[0].process_peak, peak_memory() / 2)
        << "hardly anything was taken after the case";
    const std::vector<double> losses = serial_reference(c, 4).losses;
    ASSERT_EQ(result.losses.size(), losses.size());
    for (std::size_t s = 0; s < losses.size(); ++s)
      EXPECT_NEAR(result.losses[s], losses[s], 1e-5) << s;
    EXPECT_EQ(result.seconds.size(), 3U);
    EXPECT_EQ(result.attention, "portable") << "which is not what would be chosen";
    EXPECT_EQ(result.transport.substr(0, 3), job_.ranks() == 1 ? "non" : "mpi");
    EXPECT_GE(result.max_gradient_error, 0) << "a case this small must be checked";
  }
}

/// A check fills memory: a table that is made before would be lost.
TEST_F(Job, MemoryThatBeginsWithAPatternChangesNoLoss) {
  const Case c = one_group();
  const auto loss_of = [&](std::optional<std::byte> fill) {
    engine::StepOptions options;
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

TEST_F(JobOfFewRanks, MemoryThatWasNotPlannedMakesACaseWrong) {
  if (!kernels::on_host || test::sanitized)
    GTEST_SKIP() << "of the process alone";
  const Case c = one_group();
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
      EXPECT_THAT(result.reason, testing::StartsWith(who));
      EXPECT_THAT(
          result.reason, testing::HasSubstr(by_kokkos ? "\"forgotten\"" : "outside of Kokkos"));
      EXPECT_EQ(next.status, Status::ok) << "the next case is not to blame: " << next.reason;
    }
}

TEST_F(Job, TheProcessPeakIsThatOfItsCase) {
  if (!kernels::on_host || test::sanitized)
    GTEST_SKIP() << "of the process alone";
  Case small = one_group(), large = small;
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
  topology::reset_peak_memory();
  if (peak_memory() > before + larger / 4)
    GTEST_SKIP() << "this kernel does not let a process start a new peak";
  EXPECT_LT(after, before + larger / 4);
}
}  // namespace
}  // namespace minitaw::harness
