// SPDX-License-Identifier: BSD-3-Clause
// Silent corruption: bits that are flipped at random places are found and located, and nothing else is.
#include "harness/replay.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "engine/simulated_stream.hpp"
#include "harness/cases.hpp"
#include "sanitized.hpp"
#include "seed.hpp"

namespace minitaw::harness {
namespace {
using Kind = ReplayFinding::Kind;
using schedule::Action;

void flip_bit(const model::Buffer& buffer, std::uint32_t number) {
  std::byte* const place = buffer.data + number % buffer.bytes;
  const std::byte mask{static_cast<std::uint8_t>(1U << number / buffer.bytes % 8)};
  if constexpr (kernels::on_host) *place ^= mask;
  else {
    Kokkos::View<std::byte, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged> there(place);
    std::byte value{};
    Kokkos::deep_copy(value, there);
    Kokkos::deep_copy(there, value ^ mask);
  }
}

/// A bit that is flipped before or after an action of a run, in one of the buffers that it reads or writes.
struct Flip {
  int run = 0, step = 0, rank = 0, action = 0;
  bool after = false;
  std::uint32_t number = 0;
};

class Replay : public ::testing::Test {
protected:
  [[nodiscard]] int ranks() const { return job_.ranks(); }
  [[nodiscard]] Case random_case(const std::string& schedule) {
    const int layers = ranks() + static_cast<int>(random_() % 3);
    const Case c = tests::small_case(schedule, tests::random_groups(ranks(), random_), layers, 1 + random_() % 2);
    return tests::possible(c) ? c : tests::small_case(schedule, topology::Groups({ranks()}), layers, 2);
  }
  /// With one flip; `flipped_` says whether there was a buffer to flip a bit of.
  ReplayReport with(const Case& c, const Flip& flip) {
    int flipped = 0;
    const auto disturb = [&](int run, int step, const engine::Runtime& runtime, const Action& a, bool after) {
      const Action& wanted = runtime.program().ranks[flip.rank].actions[flip.action];
      if (run != flip.run || step != flip.step || &a != &wanted || after != flip.after) return;
      std::vector<model::Buffer> touched;
      for (const auto& [in, out] : runtime.touched(a))
        if (const model::Buffer& buffer = after ? out : in; buffer.bytes > 0) touched.push_back(buffer);
      if (touched.empty()) return;
      flip_bit(touched[flip.number % touched.size()], flip.number / 7);
      flipped = 1;
    };
    ReplayReport report = job_.replay(c, {.steps = 2, .disturb = disturb});
    MPI_Allreduce(MPI_IN_PLACE, &flipped, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    flipped_ = flipped == 1;
    return report;
  }

  CaseRunner job_ = tests::job();
  std::mt19937 random_{test::seed()};
  bool flipped_ = false;
};

TEST_F(Replay, FindsNothingInACleanJob) {
  for (const std::string& name : tests::some_schedules(std::max(3, ranks()), 0)) {
    Case c = random_case(name);
    c.shape.dtype = random_() % 2 == 0 ? model::Dtype::bf16 : model::Dtype::fp32;
    c.clip_norm = random_() % 2 == 0 ? 0.5 : 0;
    SCOPED_TRACE(fmt::format("{} groups {}", name, c.groups.text()));
    const ReplayReport report = job_.replay(c, {.steps = 2});
    EXPECT_EQ(report.runs, 2) << "they differ";
    std::int64_t actions = 0;
    for (const auto& rank : schedule::build_valid(request_of(c)).ranks) actions += std::ssize(rank.actions);
    EXPECT_EQ(report.actions, actions * 2 * report.runs);
    EXPECT_TRUE(report.tensors > report.actions && report.bytes > report.tensors);
    EXPECT_TRUE(report.findings.empty());
  }
}

TEST_F(Replay, LocatesABitThatFlips) {
  std::set<Kind> kinds;
  for (const std::string& name : tests::some_schedules(std::max(3, ranks()), 1))
    for (int trial = 0; trial < (test::sanitized ? 1 : ranks() <= 3 ? 4 : 2); ++trial) {
      const Case c = random_case(name);
      const schedule::Program program = schedule::build_valid(request_of(c));
      Flip flip{
          static_cast<int>(random_() % 2), static_cast<int>(random_() % 2), static_cast<int>(random_() % ranks())};
      const std::vector<Action>& actions = program.ranks[flip.rank].actions;
      flip.action = static_cast<int>(random_() % actions.size());
      flip.after = random_() % 4 != 0;
      flip.number = static_cast<std::uint32_t>(random_());
      const ReplayReport report = with(c, flip);
      if (ranks() > 1 && job_.rank() != 0) continue;
      const Action& a = actions[flip.action];
      SCOPED_TRACE(fmt::format("{} groups {} run {} step {} rank {} {} '{}'", name, c.groups.text(), flip.run,
          flip.step, flip.rank, flip.after ? "after" : "before", to_text(a, program)));
      if (!flipped_) {
        EXPECT_EQ(report.runs, 2);
        continue;
      }
      const int place = (flip.rank + ranks() - flip.run) % ranks();
      const Kind wanted = !flip.after ? Kind::stored : is_communication(a.kind) ? Kind::transferred : Kind::computed;
      // What changes while several actions read it may be found in another one.
      const auto is_it = [&](const ReplayFinding& f) {
        return f.kind == wanted && f.run == flip.run && f.step == flip.step && f.rank == flip.rank &&
               (f.action == flip.action || !flip.after) && f.job_rank == place;
      };
      kinds.insert(wanted);
      std::string said;
      for (const ReplayFinding& f : report.findings) said += f.sentence + "\n";
      EXPECT_GE(std::ranges::count_if(report.findings, is_it), 1) << said;
      EXPECT_TRUE(!flip.after || report.findings.size() == 1) << said;
      for (const ReplayFinding& f : report.findings)
        EXPECT_TRUE(f.job_rank == place || f.sender == place) << f.sentence;
      if (wanted == Kind::transferred && is_point_to_point(a.kind)) {
        EXPECT_EQ(report.findings[0].sender, (a.peer + ranks() - flip.run) % ranks());
      }
    }
  EXPECT_TRUE(job_.rank() != 0 || test::sanitized || std::ssize(kinds) == (ranks() > 1 ? 3 : 2));
}

/// A device that computes one value of every loss wrongly, wherever it is placed.
TEST_F(Replay, NamesADeviceThatIsAlwaysWrong) {
  if (ranks() < 2) GTEST_SKIP() << "of several";
  const int bad = 1;
  Case c = random_case("fsdp");
  const auto disturb = [&](int, int, const engine::Runtime& runtime, const Action& a, bool after) {
    if (job_.rank() == bad && after && a.kind == schedule::Kind::loss) flip_bit(runtime.touched(a)[0].out, 5);
  };
  const ReplayReport report = job_.replay(c, {.disturb = disturb});
  EXPECT_EQ(report.runs, ranks() == 2 ? 4 : 3);
  if (job_.rank() != 0) return;
  ASSERT_FALSE(report.findings.empty());
  for (const ReplayFinding& f : report.findings) EXPECT_EQ(f.job_rank, ranks() == 2 ? -1 : bad) << f.sentence;
  EXPECT_EQ(report.findings[0].kind, Kind::computed);
}

TEST_F(Replay, SaysWhichDeviceAndWhatItDid) {
  if (ranks() != 3) GTEST_SKIP() << "of three";
  const Case c = tests::small_case("ddp", topology::Groups({3}), 3, 1);
  const auto disturb = [&](int run, int, const engine::Runtime& runtime, const Action& a, bool after) {
    if (run == 1 && job_.rank() == 0 && after && a.kind == schedule::Kind::embed)
      flip_bit(runtime.touched(a)[0].out, 3);
  };
  const ReplayReport report = job_.replay(c, {.places = {"node 0, device 0", "", ""}, .disturb = disturb});
  if (job_.rank() != 0) return;
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].sentence, "run 2, step 1, rank 0 (node 0, device 0), in the place of rank 1: 'embed m1 "
                                         "x0 e0' has a wrong x0 from right inputs");
}

TEST_F(Replay, RefusesSumsWithoutAFixedOrder) {
  Case c = tests::small_case("ddp", topology::Groups({ranks()}), 2, 1);
  c.attention = "cudnn";
  EXPECT_THROW((void)job_.replay(c, {}), InputError);
  c.attention = "auto";
  c.transport = "nccl";
  EXPECT_THROW((void)job_.replay(c, {}), InputError);
}
}  // namespace
}  // namespace minitaw::harness
