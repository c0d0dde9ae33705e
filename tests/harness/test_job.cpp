// SPDX-License-Identifier: BSD-3-Clause
#include "engine/simulated_stream.hpp"
#include "harness/job_test.hpp"
#include "schedule/example.hpp"

namespace minitaw::harness {
namespace {
using tests::small_case;

class Reproduction : public tests::Job {
protected:
  void reproduce_the_reference(
      const std::vector<std::string>& schedules, int trials, CaseRunner& job) {
    std::mt19937 random(5);
    for (const std::string& name : schedules)
      for (int trial = 0; trial < trials; ++trial)
        expect_right(random_case(name, 1 + static_cast<int>(random() % 3), random), job);
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
};

TEST_F(Reproduction, EveryScheduleReproducesTheSerialReference) {
  reproduce_the_reference(tests::every_schedule(), job_.ranks() < 3 ? 2 : 1, job_);
}

/// Of tests/schedule/data, on as many ranks as they are for.
TEST_F(Reproduction, PipelinesOfPyTorchReproduceIt) {
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
TEST_F(Reproduction, SchedulesReproduceItOnStreams) {
  CaseRunner on_streams = tests::job(engine::tests::simulated_streams);
  reproduce_the_reference(tests::some_schedules(job_.ranks(), 0), 1, on_streams);
}

TEST_F(Reproduction, Bf16ReproducesItWithinItsRounding) {
  std::mt19937 random(8);
  for (const std::string& name : tests::some_schedules(job_.ranks(), 1)) {
    Case c = random_case(name, 2, random);
    c.shape.dtype = model::Dtype::bf16;
    for (const bool wide : {false, true}) {
      c.shape.fp32_gradients = wide;
      expect_right(c);
    }
  }
}

TEST_F(Reproduction, CopiesOfEveryScheduleReproduceIt) {
  if (job_.ranks() % 2 != 0)
    GTEST_SKIP() << "of two equal copies";
  for (const std::string& name : tests::some_schedules(job_.ranks(), 2)) {
    Case c = small_case(name, topology::Groups::equal(job_.ranks(), 2), job_.ranks() / 2 + 1, 2);
    c.replicas = 2;
    if (schedule::entry_of(schedule::parse_spec(name).name).replicable)
      expect_right(c);
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
TEST_F(Reproduction, ClippedStepsReproduceTheSerialReference) {
  std::mt19937 random(4);
  for (const std::string& name : tests::some_schedules(std::max(3, job_.ranks()), 2)) {
    Case c = random_case(name, 2, random);
    SCOPED_TRACE(fmt::format("{} groups {}", name, c.groups.text()));
    const Training open = serial_reference(c, 3);
    c.clip_norm = 1.01 * std::min(length(open.gradients), length(open.later));
    EXPECT_TRUE(passes(job_, c, 3));
    EXPECT_FALSE(compare(serial_reference(c, 3), open).passes(serial_tolerance(c)))
        << "clipping tells";
  }
}

TEST_F(Reproduction, RanksBeyondTheCaseWait) {
  if (job_.ranks() < 2)
    GTEST_SKIP() << "of several ranks";
  EXPECT_TRUE(passes(
      job_, small_case("tawpipe", topology::Groups({job_.ranks() - 1}), job_.ranks(), 1), 1));
}

TEST_F(Reproduction, TheExampleOfThePageReproducesTheSerialReference) {
  Case c = small_case("ddp", topology::Groups({job_.ranks()}), job_.ranks() + 1, 2);
  const schedule::Request request{{"lend", {}}, c.groups, c.micro_batches, c.shape.layers, 1};
  const auto program =
      std::make_shared<const schedule::Program>(schedule::schedules::lend().build(request));
  const auto plan = std::make_shared<PlannedCase>(c, program);
  EXPECT_TRUE(passes(job_.verify(c, steps_, reference_of(c, steps_), plan), serial_tolerance(c)));
}

/// Of 300 rows, kernels make partial sums of at most 256 where 300 are planned.
TEST_F(Reproduction, CasesOfManyTokensReproduceIt) {
  if (job_.ranks() > 2)
    GTEST_SKIP() << "it is the same on more ranks, which share few cores";
  for (const std::string name : {"ddp", "zb1"}) {
    Case c = one_group(name);
    c.shape.seq = 150;
    expect_right(c);
  }
}

/// One key: queries and keys have no gradient but rounding noise; one token: loss and gradients are
/// zero; both.
TEST_F(Reproduction, TakesCasesWithoutAnyGradientForRight) {
  if (job_.ranks() > 3)
    GTEST_SKIP() << "it is the same on more ranks, which share few cores";
  for (const auto& [seq, vocab, turn] : {std::tuple{1, 29, 0}, {13, 1, 1}, {1, 1, 2}})
    for (const std::string& name : tests::some_schedules(job_.ranks() + 5, turn)) {
      Case c = small_case(name, topology::Groups({job_.ranks()}), job_.ranks() + 1, 2);
      c.shape.seq = seq;
      c.shape.vocab = vocab;
      if (tests::possible(c))
        expect_right(c);
    }
}
}  // namespace
}  // namespace minitaw::harness
