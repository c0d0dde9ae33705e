// SPDX-License-Identifier: BSD-3-Clause
// What a run says of bytes and memory, and that memory which was not planned makes it wrong.
#include <set>
#include "comm/mpi/transport.hpp"
#include "harness/collect.hpp"
#include "harness/job_test.hpp"
#include "this_run.hpp"

namespace minitaw::harness {
namespace {
using test::Says;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

/// Bytes: on a device, 16 MiB of pinned memory for each lane that communicates.
std::uint64_t pinned_of(const schedule::RankProgram& rank) {
  std::set<schedule::Lane> lanes;
  for (const schedule::Action& action : rank.actions)
    if (is_communication(action.kind))
      lanes.insert(action.lane);
  return kernels::on_host ? 0 : lanes.size() * 16 * mebibyte;
}

class Figures : public tests::Job {
protected:
  void expect_as_planned(const CaseResult& result, const Case& c) const {
    EXPECT_EQ(result.status, Status::ok) << result.reason;
    EXPECT_EQ(
        list_of(result.bytes, &LinkBytes::counted), list_of(result.bytes, &LinkBytes::planned));
    ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(ranks_));
    const schedule::Program program = schedule::build_valid(request_of(c));
    const auto planned =
        schedule::memory(program, model::make_layout(c.shape, schedule::cut_of(program)));
    for (int r = 0; r < ranks_; ++r)
      for (const auto& [kind, name] : schedule::table_of<schedule::Memory>) {
        const std::size_t k = index_of(kind);
        const int of_program = program.rank_of(r);
        const std::uint64_t bytes = planned[of_program].by_kind[k];
        const std::uint64_t pinned =
            kind == schedule::Memory::buffers ? pinned_of(program.ranks[of_program]) : 0;
        const bool aligned = bytes > 0 && kind != schedule::Memory::tokens;
        EXPECT_EQ(result.memory[r].planned[k], bytes + pinned) << "rank " << r << ' ' << name;
        EXPECT_EQ(result.memory[r].measured[k],
            bytes + pinned + (aligned ? engine::Arena::alignment : 0));
      }
  }
};

TEST_F(Figures, OfBytesAndMemoryEqualThePlan) {
  const std::map<int, std::vector<std::string>> of_ranks = {
      {1, {"serial", "tawpipe", "1f1b:slices=3 seq=26"}},
      {3,
          {"ddp",
              "fsdp groups=1+2 dtype=bf16 grad_dtype=fp32",
              "weipipe groups=1+2",
              "zb2 recompute=none",
              "tawpipe groups=1+2",
              "tawpipe:fetch=step:rails=2:reduce=group:reshard=group groups=1+2",
              "1f1b context=3 seq=30",
              "zb1:slices=3 seq=26"}},
      {4,
          {"fsdp:hierarchical=on groups=2",
              "1f1b replicas=2 groups=2 layers=3",
              "tawpipe groups=2 context=2 context_parts=2 seq=20"}}};
  for (const std::string& text : of_ranks.contains(ranks_) ? of_ranks.at(ranks_) : of_ranks.at(1)) {
    SCOPED_TRACE(text);
    const Case c = case_of(text + " clip_norm=0.5 micro_batch=3 attention=portable");
    if (c.ranks != ranks_ || (test::sanitized && c.shape.dtype == model::Dtype::bf16))
      continue;
    const CaseResult result = job_.run(c, {}).result;
    if (rank_ != 0)
      continue;
    expect_as_planned(result, c);
    EXPECT_GE(result.max_gradient_error, 0) << "a case this small must be checked";
    EXPECT_TRUE(result.max_gradient_error > 0 || !c.shape.keys_apart());
    EXPECT_EQ(result.seconds.size(), 2U);
    EXPECT_EQ(result.attention, "portable") << "which is not what would be chosen";
    EXPECT_EQ(result.transport.substr(0, 3), ranks_ == 1 ? "non" : "mpi");
    const std::vector<double> losses = serial_reference(c, 3).losses;
    ASSERT_EQ(result.losses.size(), losses.size());
    for (std::size_t s = 0; s < losses.size() && c.shape.dtype == model::Dtype::fp32; ++s)
      EXPECT_NEAR(result.losses[s], losses[s], 1e-5) << s;
  }
}

enum class Plant { freed, kept, leaked };

/// The last rank takes 100 MiB before the first step, or when the case ends.
class Taker final : public Instrument {
public:
  static constexpr std::uint64_t bytes = 100 * mebibyte;

  Taker(bool by_kokkos, Plant plant) : by_kokkos_(by_kokkos), plant_(plant) {}

  void begin_case(const RunningCase& running) override {
    last_ = running.runtime.rank() + 1 == running.asked.ranks;
    if (plant_ != Plant::leaked)
      take();
    if (plant_ == Plant::freed)
      give_back();
  }

  void end_case() override {
    if (plant_ == Plant::leaked)
      take();
  }

private:
  void take() {
    if (last_ && by_kokkos_)
      of_kokkos_ = Kokkos::View<char*, Kokkos::HostSpace>("forgotten", bytes);
    else if (last_)
      of_process_.assign(bytes, 1);
  }

  void give_back() {
    of_kokkos_ = {};
    std::vector<char>().swap(of_process_);
  }

  bool by_kokkos_, last_ = false;
  Plant plant_;
  Kokkos::View<char*, Kokkos::HostSpace> of_kokkos_{};
  std::vector<char> of_process_{};
};

/// The first step is checked after the plants are taken: what was before must not be forgotten.
TEST_F(Figures, MemoryThatWasNotPlannedMakesACaseWrong) {
  if (!kernels::on_host || test::sanitized)
    GTEST_SKIP() << "of the process alone";
  const Case c = case_of(ranks_ == 1 ? "serial" : "ddp");
  for (const auto& [by_kokkos, plant, says] : {std::tuple{true, Plant::freed, "\"forgotten\""},
           {true, Plant::kept, "\"forgotten\""},
           {true, Plant::leaked, "still holds 104857600 bytes of \"forgotten\""},
           {false, Plant::freed, "outside of Kokkos"},
           {false, Plant::kept, "outside of Kokkos"},
           {false, Plant::leaked, "after the case the process"}}) {
    CaseRunner runner =
        tests::job(engine::make_queues, {std::make_shared<Taker>(by_kokkos, plant)});
    const CaseResult result = runner.run(c, {}).result, next = job_.run(c, {}).result;
    if (rank_ != 0)
      continue;
    EXPECT_EQ(result.status, Status::wrong) << says;
    EXPECT_THAT(result.reason, Says({fmt::format("rank {}: ", ranks_ - 1), says}));
    const auto grown = [](const CaseResult& of) {
      return of.memory.back().process_peak - of.memory.back().process_begin;
    };
    if (result.memory.back().process_begin == 0)
      continue;  // this kernel does not tell
    EXPECT_EQ(next.status, Status::ok) << "the next case is not to blame: " << next.reason;
    EXPECT_LT(grown(next), Taker::bytes / 2);
    if (plant != Plant::leaked) {
      EXPECT_GE(grown(result), Taker::bytes / 16 * 15) << "the kernel counts in batches";
    }
  }
}

/// 70 MiB for a step, 10 of each kind.
schedule::Footprint seventy_mebibytes() {
  schedule::Footprint plan;
  plan.by_kind.fill(10 * mebibyte);
  plan.tokens = 10 * mebibyte;
  return plan;
}

/// What a case takes that has allocated what was planned.
topology::MemoryTaken as_planned() {
  topology::MemoryTaken taken;
  for (const auto& [kind, name] : schedule::table_of<schedule::Memory>)
    taken.kokkos[engine::label_of(kind)] = 10 * mebibyte;
  return taken;
}

TEST(Memory, BeyondThePlanAndItsSlackIsNamed) {
  const PlannedMemory planned{.step = seventy_mebibytes(),
      .process = 5 * mebibyte,
      .libraries = 3 * mebibyte,
      .transport = {.communicators = 1, .pinned = 48 * mebibyte}};
  const auto excess_after = [&](const auto& change) {
    topology::MemoryTaken taken = as_planned();
    change(taken);
    return excess(planned, taken);
  };
  for (const char* label : {"minitaw::gradients", "forgotten"})
    for (const std::uint64_t more : {0, 1}) {
      const std::string says = excess_after([&](topology::MemoryTaken& taken) {
        taken.kokkos[kernels::library_label] = 3 * mebibyte;
        taken.kokkos[comm::mpi::pinned_label] = 48 * mebibyte;
        taken.kokkos["Kokkos::OpenMP::scratch_mem"] = 100 * mebibyte;
        taken.kokkos["small"] = 5 + more;
        taken.kokkos[label] += slack_of_kokkos() - 5;
      });
      EXPECT_EQ(
          says.find(fmt::format("{} bytes of \"{}\"", slack_of_kokkos() - 5, label)) != says.npos,
          more == 1)
          << says;
      EXPECT_EQ(says.empty(), more == 0);
    }
  EXPECT_THAT(excess_after([](auto& taken) { --taken.kokkos["minitaw::optimiser"]; }),
      Says({"\"minitaw::optimiser\"", "10485760 were planned"}));

  // The process had 7 MiB; of what it took, 70 MiB are Kokkos's, 5 are planned, 64 are slack.
  const auto process = [&](std::uint64_t more) {
    return excess_after([=](topology::MemoryTaken& taken) {
      taken.process_begin = 7 * mebibyte;
      taken.process_peak = (7 + 70 + 5 + 64) * mebibyte + more;
    });
  };
  EXPECT_EQ(process(0), "");
  if (kernels::on_host)
    EXPECT_THAT(process(1), Says({"the process", "72351745 bytes", "outside of Kokkos"}));
  else
    EXPECT_EQ(process(1), "") << "libraries take what they like";
  // The device: 70 MiB are Kokkos's, 1 GiB is slack, 256 MiB are of a communicator.
  const auto device = [&](std::uint64_t more) {
    return excess_after([=](topology::MemoryTaken& taken) {
      taken.device_begin = mebibyte;
      taken.device_used = (1 + 70 + 1024 + 256) * mebibyte + more;
    });
  };
  EXPECT_EQ(device(0), "");
  EXPECT_THAT(device(1), Says({"the device", "1342177281 bytes", "outside of Kokkos"}));
}

TEST(Memory, WhatACaseLeavesBehindHasItsSlack) {
  EXPECT_EQ(leftover({{"a", slack_of_kokkos()}}, slack_of_process + 7, 7), "");
  EXPECT_THAT(leftover({{"a", slack_of_kokkos()}, {"b", 1}}, 0, 0), Says({"\"a\""}));
  for (const char* label : {kernels::library_label, "Kokkos::OpenMP::scratch_mem"})
    EXPECT_EQ(leftover({{label, slack_of_kokkos() + 1}}, 0, 0), "") << label;
  EXPECT_EQ(leftover({}, slack_of_process + 8, 7).empty(), !kernels::on_host);
}

TEST(Memory, OfARankIsKeptByKind) {
  topology::MemoryTaken taken = as_planned();
  taken.kokkos["minitaw::tokens"] = 11;
  taken.kokkos["x"] = 12;
  taken.kokkos["y"] = 13;
  taken.kokkos[kernels::library_label] = 100;
  taken.kokkos[comm::mpi::pinned_label] = 19;
  taken.process_begin = 15;
  taken.process_peak = 16;
  taken.device_used = 18;
  const RankMemory memory =
      memory_of({.step = seventy_mebibytes(), .transport = {.pinned = 20}}, taken);
  std::array<std::uint64_t, schedule::memory_kinds> planned{}, measured{};
  planned.fill(10 * mebibyte);
  measured.fill(10 * mebibyte);
  planned[index_of(schedule::Memory::buffers)] += 20;
  measured[index_of(schedule::Memory::buffers)] += 19;
  measured[index_of(schedule::Memory::tokens)] = 11;
  EXPECT_EQ(memory.planned, planned);
  EXPECT_EQ(memory.measured, measured);
  EXPECT_EQ(
      (std::array{memory.other, memory.process_begin, memory.process_peak, memory.device_used}),
      (std::array<std::uint64_t, 4>{25, 15, 16, 18}));
}
}  // namespace
}  // namespace minitaw::harness
