// SPDX-License-Identifier: BSD-3-Clause
#include "comm/mpi/transport.hpp"
#include "fixtures.hpp"
#include "harness/taken.hpp"

namespace minitaw::harness {
namespace {
using test::Says, tests::taken_as_planned;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

/// 70 MiB for a step, 10 of each kind.
schedule::Footprint seventy_mebibytes() {
  schedule::Footprint plan;
  plan.by_kind.fill(10 * mebibyte);
  plan.tokens = 10 * mebibyte;
  return plan;
}

TEST(Memory, BeyondThePlanIsNamedByItsLabel) {
  const schedule::Footprint plan = seventy_mebibytes();
  EXPECT_EQ(excess({plan}, taken_as_planned(plan)), "");
  for (const std::string label : {"minitaw::gradients", "forgotten"}) {
    topology::MemoryTaken taken = taken_as_planned(plan);
    taken.kokkos["small"] = 5;
    taken.kokkos[label] += slack_of_kokkos() - 5;
    EXPECT_EQ(excess({plan}, taken), "") << "just within the slack";
    taken.kokkos["small"] += 1;
    const std::string bytes = std::to_string(slack_of_kokkos() - 5);
    EXPECT_THAT(excess({plan}, taken), Says({bytes + " bytes", "\"" + label + "\""})) << label;
  }
  topology::MemoryTaken of_kokkos = taken_as_planned(plan);
  of_kokkos.kokkos["Kokkos::OpenMP::scratch_mem"] = 100 * mebibyte;
  EXPECT_EQ(excess({plan}, of_kokkos), "");
  topology::MemoryTaken less = taken_as_planned(plan);
  less.kokkos["minitaw::optimiser"] -= 1;
  EXPECT_THAT(excess({plan}, less), Says({"\"minitaw::optimiser\"", "10485760 were planned"}));
}

/// Workspaces of libraries and pinned slots, beside what the program lists.
TEST(Memory, OfLibrariesAndTransportIsPlannedToo) {
  const schedule::Footprint plan = seventy_mebibytes();
  const PlannedMemory planned{
      .step = plan, .libraries = 300 * mebibyte, .transport = {.pinned = 48 * mebibyte}};
  topology::MemoryTaken taken = taken_as_planned(plan);
  taken.kokkos[kernels::library_label] = 300 * mebibyte;
  taken.kokkos[comm::mpi::pinned_label] = 48 * mebibyte + slack_of_kokkos();
  EXPECT_EQ(excess(planned, taken), "");
  ++taken.kokkos[kernels::library_label];
  EXPECT_THAT(excess(planned, taken), Says({"\"minitaw::pinned\""}));
  taken.kokkos[comm::mpi::pinned_label] = 0;  // it may be less
  EXPECT_EQ(excess(planned, taken), "");
}

/// A process that had 7 MiB before: 70 were planned, 3 are Kokkos's own, 5 are planned beside, 64
/// are slack.
TEST(Memory, BeyondThePlanIsOutsideOfKokkosWhereNoLabelHasIt) {
  const schedule::Footprint plan = seventy_mebibytes();
  topology::MemoryTaken taken = taken_as_planned(plan);
  taken.kokkos["Kokkos::scratch"] = mebibyte / 2;
  taken.process_begin = 7 * mebibyte;
  taken.process_peak = (7 + 70 + 5 + 64) * mebibyte + mebibyte / 2;
  const PlannedMemory five{.step = plan, .process = 5 * mebibyte};
  EXPECT_EQ(excess(five, taken), "");
  ++taken.process_peak;
  if (kernels::on_host)
    EXPECT_THAT(excess(five, taken), Says({"the process", "72351745 bytes", "outside of Kokkos"}));
  else
    EXPECT_EQ(excess(five, taken), "") << "libraries take what they like";
  taken.process_begin = 0;
  EXPECT_EQ(excess(five, taken), "") << "this kernel does not tell";

  taken.device_begin = mebibyte;
  const PlannedMemory three{.step = plan, .libraries = 3 * mebibyte};
  taken.kokkos[kernels::library_label] = three.libraries;
  taken.device_used = (1 + 70 + 3 + 1024) * mebibyte + mebibyte / 2 + 1;
  EXPECT_THAT(excess(three, taken), Says({"the device", "1073741825 bytes", "outside of Kokkos"}));
  EXPECT_EQ(excess({.step = plan, .libraries = three.libraries, .transport = {1}}, taken), "")
      << "a communicator has 256 MiB";
}

TEST(Memory, WhatACaseLeavesBehindIsNamed) {
  EXPECT_EQ(leftover({{"a", slack_of_kokkos()}}, slack_of_process + 7, 7), "");
  EXPECT_THAT(leftover({{"a", slack_of_kokkos()}, {"b", 1}}, 0, 0), Says({"\"a\""}));
  for (const char* label : {kernels::library_label, "Kokkos::OpenMP::scratch_mem"})
    EXPECT_EQ(leftover({{label, slack_of_kokkos() + 1}}, 0, 0), "") << label;
  if (kernels::on_host)
    EXPECT_THAT(
        leftover({}, slack_of_process + 1, 0), Says({"67108865 bytes", "more than before"}));
  else
    EXPECT_EQ(leftover({}, slack_of_process + 1, 0), "");
}

TEST(Memory, OfARankIsKeptByKind) {
  const schedule::Footprint plan = seventy_mebibytes();
  topology::MemoryTaken taken = taken_as_planned(plan);
  taken.kokkos["minitaw::tokens"] = 11;
  taken.kokkos["x"] = 12;
  taken.kokkos["y"] = 13;
  taken.kokkos[kernels::library_label] = 100;
  taken.kokkos[comm::mpi::pinned_label] = 19;
  taken.process_begin = 15;
  taken.process_peak = 16;
  taken.device_used = 18;
  const RankMemory memory = memory_of({.step = plan, .transport = {.pinned = 20}}, taken);
  EXPECT_EQ(memory.planned.back(), 10 * mebibyte);
  EXPECT_EQ(memory.measured[index_of(schedule::Memory::tokens)], 11U);
  EXPECT_EQ(memory.measured.front(), 10 * mebibyte);
  const std::size_t buffers = index_of(schedule::Memory::buffers);
  EXPECT_EQ(memory.planned[buffers], 10 * mebibyte + 20);
  EXPECT_EQ(memory.measured[buffers], 10 * mebibyte + 19);
  EXPECT_EQ(
      (std::array{memory.other, memory.process_begin, memory.process_peak, memory.device_used}),
      (std::array<std::uint64_t, 4>{25, 15, 16, 18}));
}

/// The last rank alone has a text.
TEST(Memory, AnyRankFailsTheCase) {
  CaseResult result;
  fail_at_first(
      result, tests::world_rank() + 1 == tests::world_size() ? "too much" : "", MPI_COMM_WORLD);
  if (tests::world_rank() != 0)
    return;
  EXPECT_EQ(result.status, Status::wrong);
  EXPECT_EQ(result.reason, fmt::format("rank {}: too much", tests::world_size() - 1));
}
}  // namespace
}  // namespace minitaw::harness
