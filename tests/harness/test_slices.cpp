// SPDX-License-Identifier: BSD-3-Clause
// Pipelines that pass sequences in slices compute what one rank does with whole ones. Numbers of
// ranks execute other cases each.
#include "engine/simulated_stream.hpp"
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
using model::Recompute;

class SlicedSequences : public tests::Job {
protected:
  /// Calls `visit` for every spec, with 26 tokens a sequence and three blocks a rank.
  void for_each_case(const std::vector<std::string>& specs, const auto& visit) {
    for (const std::string& spec : specs) {
      Case c = tests::small_case(
          spec, topology::Groups({job_.ranks()}), 2 * job_.ranks() + seen_ % 2, 1);
      c.micro_batches = 3;
      c.shape.seq = 26;
      visit(c);
    }
  }

  void expect_right(const Case& c) { expect_right(c, job_); }

  void expect_right(Case c, CaseRunner& job) {
    set_schedule(c, c.schedule);
    SCOPED_TRACE(fmt::format("{} context {} replicas {} layers {} S {} B {} M {} recompute {}",
        c.schedule,
        c.shape.context.count,
        c.replicas,
        c.shape.layers,
        c.shape.seq,
        c.shape.micro_batch,
        c.micro_batches,
        name_of(c.shape.recompute)));
    EXPECT_TRUE(passes(job, c, 2));
    ++seen_;
  }

  void TearDown() override { EXPECT_TRUE(seen_ > 0 || IsSkipped()); }

  int seen_ = 0;
};

TEST_F(SlicedSequences, OfBothSchedulesReproduceTheSerialReference) {
  for_each_case({"1f1b:slices=2",
                    "1f1b:slices=3",
                    "1f1b:slices=8",
                    "1f1b:slices=3:blocking=on",
                    "zb1:slices=2",
                    "zb1:slices=3",
                    "zb1:slices=8:cut=even"},
      [this](const Case& c) { expect_right(c); });
}

TEST_F(SlicedSequences, ReproduceItWhateverIsRecomputed) {
  for_each_case({"1f1b:slices=3", "zb1:slices=3", "zb1:slices=4"}, [this](Case c) {
    for (const Recompute recompute : {Recompute::keep_attention, Recompute::none}) {
      c.shape.recompute = recompute;
      c.shape.micro_batch = 1 + seen_ % 3;
      expect_right(c);
    }
  });
}

TEST_F(SlicedSequences, ReproduceItInBf16WithinItsRounding) {
  for_each_case({"1f1b:slices=3", "zb1:slices=8"}, [this](Case c) {
    c.shape.dtype = model::Dtype::bf16;
    c.shape.fp32_key_gradients = seen_ % 2 == 1;
    expect_right(c);
  });
}

TEST_F(SlicedSequences, ReproduceItWithClippedGradients) {
  for_each_case({"1f1b:slices=2", "zb1:slices=2"}, [this](Case c) {
    c.clip_norm = 0.5;
    expect_right(c);
  });
}

TEST_F(SlicedSequences, OfRanksThatShareThemReproduceIt) {
  if (job_.ranks() < 2)
    GTEST_SKIP() << "of several ranks";
  for_each_case(
      {"1f1b:slices=2", "1f1b:slices=3", "zb1:slices=3", "zb1:slices=4:cut=even"}, [this](Case c) {
        const int n = job_.ranks() == 3 ? 3 : 2;
        c.shape.context = {0, n};
        c.shape.seq = 26 * n;
        c.shape.micro_batch = 1 + seen_ % 2;
        c.shape.key_parts = seen_ % 2 == 0 ? 1 : c.shape.kv_heads;
        c.shape.recompute = std::array{
            Recompute::block, Recompute::none, Recompute::keep_attention, Recompute::block}[seen_];
        expect_right(c);
      });
}

TEST_F(SlicedSequences, OfReplicasReproduceIt) {
  if (job_.ranks() % 2 != 0)
    GTEST_SKIP() << "of two replicas";
  for_each_case({"1f1b:slices=2", "zb1:slices=3"}, [this](Case c) {
    c.groups = topology::Groups::equal(job_.ranks(), 2);
    c.replicas = 2;
    c.micro_batches = 4;
    expect_right(c);
  });
}

// One thread submits everything ahead of the work, as on a device whose transport works on streams.
TEST_F(SlicedSequences, ReproduceItOnStreams) {
  CaseRunner on_streams = tests::job(engine::tests::simulated_streams);
  for_each_case(
      {"1f1b:slices=3", "zb1:slices=3"}, [&](const Case& c) { expect_right(c, on_streams); });
}
}  // namespace
}  // namespace minitaw::harness
