// SPDX-License-Identifier: BSD-3-Clause
// Silent corruption: bits that are flipped at random places are found and located, and nothing else
// is.
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include "base/error.hpp"
#include "harness/cases.hpp"
#include "instruments/replay/replay.hpp"
#include "this_run.hpp"

namespace minitaw::replay {
namespace {
using schedule::Action, schedule::Kind;

void flip_bit(const model::Buffer& buffer, std::uint32_t number) {
  std::byte* const place = buffer.data + number % buffer.bytes;
  const std::byte mask{static_cast<std::uint8_t>(1U << number / buffer.bytes % 8)};
  if constexpr (kernels::on_host)
    *place ^= mask;
  else {
    Kokkos::View<std::byte, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged> there(
        place);
    std::byte value{};
    Kokkos::deep_copy(value, there);
    Kokkos::deep_copy(there, value ^ mask);
  }
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

class Replay : public ::testing::Test {
protected:
  [[nodiscard]] int ranks() const { return job_.ranks(); }

  [[nodiscard]] int random(std::size_t below) { return static_cast<int>(random_() % below); }

  [[nodiscard]] Case random_case(const std::string& schedule) {
    const int layers = ranks() + random(3);
    Case c = harness::tests::small_case(
        schedule, harness::tests::random_groups(ranks(), random_), layers, 1 + random(2));
    if (!harness::tests::possible(c))
      c = harness::tests::small_case(schedule, topology::Groups({ranks()}), layers, 2);
    c.steps = 2;
    return c;
  }

  harness::CaseRunner job_ = harness::tests::job();
  std::mt19937 random_{test::seed()};
};

TEST_F(Replay, FindsNothingInACleanJob) {
  for (const std::string& name : harness::tests::some_schedules(std::max(3, ranks()), 0)) {
    Case c = random_case(name);
    c.shape.dtype = random(2) == 0 ? model::Dtype::bf16 : model::Dtype::fp32;
    c.clip_norm = random(2) == 0 ? 0.5 : 0;
    SCOPED_TRACE(fmt::format("{} groups {}", name, c.groups.text()));
    const Report report = compare_runs(job_, c, {});
    EXPECT_EQ(report.runs, 2) << "they differ";
    const schedule::Program program = schedule::build_valid(request_of(c));
    std::int64_t actions = 0, tensors = 0;
    for (int r = 0; r < c.ranks; ++r)
      for (const Action& a : program.ranks[r].actions) {
        tensors += a.kind == Kind::update || a.kind == Kind::loss ? 2 : 0;  // optimiser state, loss
        for (const auto& access : accesses(a, r))
          tensors += (access.read ? 1 : 0) + (access.write ? 1 : 0);
        ++actions;
      }
    EXPECT_EQ(report.actions, actions * 2 * report.runs);
    EXPECT_EQ(report.tensors, tensors * 2 * report.runs);
    EXPECT_TRUE(report.findings.empty());
  }
}

/// Of one rank, where every action reads and writes whole slots.
TEST_F(Replay, CountsTheBytesOfAllThatIsReadAndWritten) {
  std::atomic<std::size_t> bytes = 0;
  const auto count = [&](int, int, const engine::Runtime& runtime, const Action& a, bool after) {
    for (const auto& access : accesses(a, 0))
      if (after ? access.write : access.read)
        bytes += runtime.arena().slot(access.slot).bytes;
    if (a.kind == Kind::update)
      bytes += runtime.arena().optimiser(of_embeddings(a.payload) ? 1 : 0).bytes;
    if (a.kind == Kind::loss)
      bytes += sizeof(double);
  };
  if (ranks() > 1)
    GTEST_SKIP() << "of one rank";
  const Report report = compare_runs(
      job_, harness::tests::small_case("serial", topology::Groups({1}), 1, 3), {}, count);
  EXPECT_EQ(static_cast<std::size_t>(report.bytes), bytes);
}

/// What no slot holds: optimiser state and loss, in the first step or between the steps.
TEST_F(Replay, LocatesABitOfTheOptimiserStateOrLoss) {
  const int who = ranks() - 1;
  for (const auto& [kind, in_step, afterwards, what] :
      {std::tuple{Kind::update, 0, true, "optimiser state of h0"},
          {Kind::update, 1, false, "optimiser state of h0"},
          {Kind::loss, 1, true, "loss"}}) {
    const auto disturb =
        [&](int run, int step, const engine::Runtime& runtime, const Action& a, bool after) {
          if (run != 1 || runtime.rank() != who || step != in_step || after != afterwards ||
              a.kind != kind)
            return;
          if (kind == Kind::loss && a.micro_batch % 2 == 0)
            flip_bit({reinterpret_cast<std::byte*>(runtime.arena().loss()), 8}, 50);
          if (kind == Kind::update && a.payload == schedule::Payload::weights)
            flip_bit(runtime.arena().optimiser(0), 5);
        };
    Case c = harness::tests::small_case("fsdp", topology::Groups({ranks()}), ranks(), 2);
    c.steps = 2;
    const Report report = compare_runs(job_, c, {}, disturb);
    EXPECT_GT(report.runs, 2) << what;
    if (job_.rank() != 0)
      continue;
    ASSERT_FALSE(report.findings.empty()) << what;
    const std::string& said = report.findings[0];
    EXPECT_TRUE(said.starts_with(fmt::format("run 2, step {}, rank {}, in the place of rank {}: ",
        in_step + 1,
        (who + ranks() - 1) % ranks(),
        who)))
        << said;
    EXPECT_TRUE(has(said,
        afterwards ? fmt::format("' has a wrong {} from right inputs", what)
                   : fmt::format(": {} has changed before 'update W", what)))
        << said;
  }
}

/// Before or after an action of a run, in one of the buffers that it reads or writes.
TEST_F(Replay, LocatesABitThatFlips) {
  std::set<int> kinds;
  std::vector<std::string> places;
  for (int r = 0; r < ranks(); ++r)
    places.push_back(fmt::format("device {}", r));
  for (const std::string& name : harness::tests::some_schedules(std::max(3, ranks()), 1))
    for (int trial = 0; trial < (test::sanitized ? 1 : ranks() <= 3 ? 4 : 2); ++trial) {
      const Case c = random_case(name);
      const schedule::Program program = schedule::build_valid(request_of(c));
      const int in_run = random(2), in_step = random(2), rank = random(ranks()),
                number = random(1 << 30);
      const int at = random(program.ranks[rank].actions.size()), afterwards = random(4) != 0;
      int flipped = 0;
      const auto disturb =
          [&](int run, int step, const engine::Runtime& runtime, const Action& a, bool after) {
            const Action& wanted = runtime.program().ranks[rank].actions[at];
            if (run != in_run || step != in_step || &a != &wanted || after != afterwards)
              return;
            std::vector<model::Buffer> touched;
            for (const auto& [in, out] : runtime.touched(a))
              if (const model::Buffer& buffer = after ? out : in; buffer.bytes > 0)
                touched.push_back(buffer);
            if (!touched.empty())
              flip_bit(touched[number % touched.size()], number / 7);
            flipped = touched.empty() ? 0 : 1;
          };
      const Report report = compare_runs(job_, c, places, disturb);
      MPI_Allreduce(MPI_IN_PLACE, &flipped, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
      const Action& a = program.ranks[rank].actions[at];
      const std::string what = fmt::format("'{}'", to_text(a, program));
      const auto placed = [&](int r) {
        return fmt::format("rank {0} (device {0})", (r + ranks() - in_run) % ranks());
      };
      const std::string where = fmt::format("run {}, step {}, {}, in the place of rank {}: ",
          in_run + 1,
          in_step + 1,
          placed(rank),
          rank);
      SCOPED_TRACE(fmt::format("{} groups {} {}{} {}",
          name,
          c.groups.text(),
          where,
          afterwards ? "after" : "before",
          what));
      EXPECT_EQ(report.runs > 2, flipped == 1);
      if (job_.rank() != 0 || flipped == 0)
        continue;
      // What changes while several actions read it may be found in another one.
      const std::string begin = afterwards ? where + what + " has a wrong " : where;
      const bool sent = is_point_to_point(a.kind) || a.kind == Kind::broadcast;
      const std::string sender = sent ? "what " + placed(a.peer) : "";
      const std::string end = !afterwards                ? "'"
                              : is_communication(a.kind) ? sender + " sent is right"
                                                         : " from right inputs";
      const auto is_it = [&](const std::string& found) {
        return found.starts_with(begin) && found.ends_with(end) &&
               (afterwards || has(found, " has changed before '"));
      };
      kinds.insert(!afterwards ? 0 : is_communication(a.kind) ? 1 : 2);
      const std::string said = fmt::format("{}", fmt::join(report.findings, "\n"));
      EXPECT_GE(std::ranges::count_if(report.findings, is_it), 1) << said;
      EXPECT_TRUE(!afterwards || report.findings.size() == 1) << said;
      for (const std::string& found : report.findings)
        EXPECT_TRUE(has(found, placed(rank) + ", in the place") ||
                    has(found, "what " + placed(rank) + " sent"))
            << said;
    }
  EXPECT_TRUE(job_.rank() != 0 || test::sanitized || std::ssize(kinds) == (ranks() > 1 ? 3 : 2));
}

/// A device that computes one value of every loss wrongly, wherever it is placed.
TEST_F(Replay, NamesADeviceThatIsAlwaysWrong) {
  if (ranks() < 2)
    GTEST_SKIP() << "of several";
  const auto disturb = [&](int, int, const engine::Runtime& runtime, const Action& a, bool after) {
    if (job_.rank() == 1 && after && a.kind == Kind::loss)
      flip_bit(runtime.touched(a)[0].out, 5);
  };
  Case c = random_case("fsdp");
  c.steps = 1;
  const Report report = compare_runs(job_, c, {}, disturb);
  EXPECT_EQ(report.runs, ranks() == 2 ? 4 : 3);
  if (job_.rank() != 0)
    return;
  ASSERT_FALSE(report.findings.empty());
  for (const std::string& found : report.findings)
    EXPECT_TRUE(has(
        found, ranks() == 2 ? ", a rank that the runs do not tell, " : ", rank 1, in the place "))
        << found;
  EXPECT_TRUE(report.findings[0].ends_with(" from right inputs")) << report.findings[0];
  for (const std::string& found : report.findings)
    EXPECT_TRUE(ranks() > 2 || found.starts_with("run 1, ")) << found;
}

TEST_F(Replay, NamesWhoSentWhatABroadcastSpoilt) {
  if (ranks() < 2)
    GTEST_SKIP() << "of several";
  const auto disturb =
      [&](int run, int, const engine::Runtime& runtime, const Action& a, bool after) {
        if (run == 1 && runtime.rank() == 0 && after && a.kind == Kind::broadcast && a.peer == 1)
          flip_bit(runtime.touched(a)[0].out, 5);
      };
  const Case c = harness::tests::small_case("tawpipe", topology::Groups({ranks()}), ranks(), 1);
  const Report report = compare_runs(job_, c, {}, disturb);
  if (job_.rank() != 0)
    return;
  ASSERT_FALSE(report.findings.empty());
  EXPECT_TRUE(report.findings[0].ends_with("and what rank 0 sent is right")) << report.findings[0];
}

TEST_F(Replay, RefusesSumsWithoutAFixedOrder) {
  Case c = harness::tests::small_case("ddp", topology::Groups({ranks()}), 2, 1);
  for (const auto& [attention, transport] : {std::pair{"cudnn", "auto"}, {"auto", "nccl"}}) {
    c.attention = attention;
    c.transport = transport;
    EXPECT_THROW((void)compare_runs(job_, c, {}), InputError) << transport;
  }
}
}  // namespace
}  // namespace minitaw::replay
