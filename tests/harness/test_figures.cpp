// SPDX-License-Identifier: BSD-3-Clause
// What a run says of bytes and memory, and that memory which was not planned makes it wrong.
#include "comm/mpi/transport.hpp"
#include "harness/collect.hpp"
#include "harness/job_test.hpp"
#include "this_run.hpp"

namespace minitaw::harness {
namespace {
using test::Says;
using testing::DoubleNear, testing::ElementsAre, testing::Pointwise, testing::StartsWith;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

class Figures : public tests::Job {
protected:
  void expect_as_planned(const CaseResult& result, const Case& c) const {
    EXPECT_EQ(result.status, Status::ok) << result.reason;
    EXPECT_EQ(
        list_of(result.bytes, &LinkBytes::counted), list_of(result.bytes, &LinkBytes::planned));
    const schedule::Program program = schedule::build_valid(request_of(c));
    const auto planned =
        schedule::memory(program, model::make_layout(c.shape, schedule::cut_of(program)));
    for (int r = 0; r < ranks_; ++r)
      for (const auto& [kind, name] : schedule::table_of<schedule::Memory>) {
        const std::size_t k = index_of(kind);
        const std::uint64_t bytes = planned[program.rank_of(r)].by_kind[k];
        const bool aligned = bytes > 0 && kind != schedule::Memory::tokens;
        const RankMemory& found = result.memory.at(r);
        if (kernels::on_host || kind != schedule::Memory::buffers) {  // of a device, pinned too
          EXPECT_EQ(found.planned[k], bytes) << "rank " << r << ' ' << name;
        }
        EXPECT_EQ(found.measured[k], found.planned[k] + (aligned ? engine::Arena::alignment : 0));
      }
  }
};

TEST_F(Figures, OfBytesAndMemoryEqualThePlan) {
  for (const std::string& text : rows_of(R"(
1 serial
1 tawpipe
1 1f1b:slices=3 seq=26
3 ddp
3 fsdp groups=1+2 dtype=bf16 grad_dtype=fp32
3 weipipe groups=1+2
3 zb2 recompute=none
3 tawpipe:fetch=step:rails=2:reduce=group:reshard=group groups=1+2
3 1f1b context=3 seq=30
3 zb1:slices=3 seq=26
4 fsdp:hierarchical=on groups=2
4 1f1b replicas=2 groups=2 layers=3
4 tawpipe groups=2 context=2 context_parts=2 seq=20
)")) {
    SCOPED_TRACE(text);
    const Case c = case_of(text + " clip_norm=0.5 micro_batch=3 attention=portable");
    const bool narrow = c.shape.dtype == model::Dtype::bf16;
    if (test::sanitized && narrow)
      continue;
    const CaseResult result = job_.run(c, {}).result;
    if (rank_ != 0)
      continue;
    expect_as_planned(result, c);
    EXPECT_GE(result.max_gradient_error, 0) << "a case this small must be checked";
    EXPECT_TRUE(result.max_gradient_error > 0 || !c.shape.keys_apart());
    EXPECT_EQ(result.seconds.size(), 2U);
    EXPECT_EQ(result.attention, "portable") << "which is not what would be chosen";
    EXPECT_THAT(result.transport, StartsWith(ranks_ == 1 ? "none" : "mpi"));
    if (!narrow) {
      EXPECT_THAT(result.losses, Pointwise(DoubleNear(1e-5), serial_reference(c, 3).losses));
    }
  }
}

/// The last rank takes 100 MiB before the first step, or when the case ends.
class Taker final : public Instrument {
public:
  static constexpr std::uint64_t bytes = 100 * mebibyte;

  enum Plant { freed, kept, leaked };

  Taker(bool by_kokkos, Plant plant) : by_kokkos_(by_kokkos), plant_(plant) {}

  void begin_case(const RunningCase& running) override {
    last_ = running.runtime.rank() + 1 == running.asked.ranks;
    if (plant_ != leaked)
      take();
    if (plant_ == freed)
      taken_.reset();
  }

  void end_case() override {
    if (plant_ == leaked)
      take();
  }

private:
  void take() {
    if (last_ && by_kokkos_)
      taken_ = std::make_shared<Kokkos::View<char*, Kokkos::HostSpace>>("forgotten", bytes);
    else if (last_)
      taken_ = std::make_shared<std::vector<char>>(bytes, 1);
  }

  bool by_kokkos_, last_ = false;
  Plant plant_;
  std::shared_ptr<void> taken_{};
};

/// The first step is checked after the plants are taken: what was before must not be forgotten.
TEST_F(Figures, MemoryThatWasNotPlannedMakesACaseWrong) {
  if (!kernels::on_host || test::sanitized)
    GTEST_SKIP() << "of the process alone";
  const Case c = case_of(ranks_ == 1 ? "serial" : "ddp");
  for (const auto& [by_kokkos, plant, says] : {std::tuple{true, Taker::freed, "\"forgotten\""},
           {true, Taker::kept, "\"forgotten\""},
           {true, Taker::leaked, "still holds 104857600 bytes of \"forgotten\""},
           {false, Taker::freed, "outside of Kokkos"},
           {false, Taker::leaked, "after the case the process"}}) {
    CaseRunner runner =
        tests::job(engine::make_queues, {std::make_shared<Taker>(by_kokkos, plant)});
    const CaseResult result = runner.run(c, {}).result, next = job_.run(c, {}).result;
    if (rank_ != 0)
      continue;
    EXPECT_EQ(result.status, Status::wrong);
    EXPECT_THAT(result.reason, Says({fmt::format("rank {}: ", ranks_ - 1), says}));
    EXPECT_EQ(next.reason, "") << "the next case is not to blame";
  }
}

TEST(Memory, BeyondThePlanAndItsSlackIsNamed) {
  PlannedMemory planned{.step = {},
      .process = 5 * mebibyte,
      .libraries = 3 * mebibyte,
      .transport = {.communicators = 1, .pinned = 48 * mebibyte}};
  topology::MemoryTaken as_planned;  // 70 MiB
  for (const auto& [kind, name] : schedule::table_of<schedule::Memory>)
    planned.step.by_kind[index_of(kind)] = as_planned.kokkos[engine::label_of(kind)] =
        10 * mebibyte;
  // `take` takes all that may be taken, and one byte more.
  const auto expect = [&](const std::vector<std::string>& words, const auto& take) {
    for (const std::uint64_t more : {0, 1}) {
      topology::MemoryTaken taken = as_planned;
      take(taken, more);
      const std::string said = excess(planned, taken);
      EXPECT_EQ(said.empty(), more == 0 || words.empty()) << said;
      EXPECT_THAT(said, Says(more == 0 ? std::vector<std::string>() : words));
    }
  };
  const std::uint64_t most = slack_of_kokkos() - 5;
  for (const char* label : {"minitaw::gradients", "forgotten"})
    expect({fmt::format("{} bytes of \"{}\"", most, label)}, [&](auto& taken, auto more) {
      taken.kokkos[kernels::library_label] = 3 * mebibyte;
      taken.kokkos[comm::mpi::pinned_label] = 48 * mebibyte;
      taken.kokkos["Kokkos::OpenMP::scratch_mem"] = 100 * mebibyte;
      taken.kokkos["small"] = 5 + more;
      taken.kokkos[label] += most;
    });
  expect({"\"minitaw::optimiser\"", "10485760 were planned"},
      [](auto& taken, auto more) { taken.kokkos["minitaw::optimiser"] -= more; });
  // The process had 7 MiB; of what it took, 70 MiB are Kokkos's, 5 are planned, 64 are slack. On a
  // device libraries take what they like.
  std::vector<std::string> of_process = {"the process", "72351745 bytes", "outside of Kokkos"};
  if (!kernels::on_host)
    of_process = {};
  expect(of_process, [](auto& taken, auto more) {
    taken.process_begin = 7 * mebibyte;
    taken.process_peak = (7 + 70 + 5 + 64) * mebibyte + more;
  });
  // 70 MiB are Kokkos's, 1 GiB is slack, 256 MiB are of a communicator.
  expect({"the device", "1342177281 bytes", "outside of Kokkos"}, [](auto& taken, auto more) {
    taken.device_begin = mebibyte;
    taken.device_used = (1 + 70 + 1024 + 256) * mebibyte + more;
  });
}

TEST(Memory, WhatACaseLeavesBehindHasItsSlack) {
  EXPECT_EQ(leftover({{"a", slack_of_kokkos()}}, slack_of_process + 7, 7), "");
  EXPECT_THAT(leftover({{"a", slack_of_kokkos()}, {"b", 1}}, 0, 0), Says({"\"a\""}));
  for (const char* label : {kernels::library_label, "Kokkos::OpenMP::scratch_mem"})
    EXPECT_EQ(leftover({{label, slack_of_kokkos() + 1}}, 0, 0), "") << label;
  EXPECT_EQ(leftover({}, slack_of_process + 8, 7).empty(), !kernels::on_host);
}

TEST(Memory, OfARankIsKeptByKind) {
  const topology::MemoryTaken taken{.kokkos = {{"minitaw::tokens", 11},
                                        {"x", 12},
                                        {"y", 13},
                                        {"Kokkos::OpenMP::scratch_mem", 14},
                                        {kernels::library_label, 100},
                                        {comm::mpi::pinned_label, 19}},
      .process_begin = 15,
      .process_peak = 16,
      .device_used = 18};
  const RankMemory memory = memory_of({.step = {}, .transport = {.pinned = 20}}, taken);
  constexpr std::size_t buffers = index_of(schedule::Memory::buffers);
  EXPECT_THAT((std::array{memory.planned[buffers],
                  memory.measured[buffers],
                  memory.other,
                  memory.process_begin,
                  memory.process_peak,
                  memory.device_used}),
      ElementsAre(20, 19, 25, 15, 16, 18));
}
}  // namespace
}  // namespace minitaw::harness
