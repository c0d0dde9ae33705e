// SPDX-License-Identifier: BSD-3-Clause
// Ranks that share sequences compute what one rank does.
#include "engine/simulated_stream.hpp"
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
using model::Recompute;

class SharedSequences : public tests::Job {
protected:
  /// Calls `visit` for a case of each schedule with each context that the ranks allow, a sequence
  /// of 12 n tokens, and groups of n ranks and more.
  void for_each_case(const std::vector<std::string>& schedules, const auto& visit) {
    int turn = 0;
    for (const int n : {2, 3, 4})
      for (const std::string& name : schedules) {
        if (job_.ranks() % n != 0)
          continue;
        const std::vector<int> sizes = job_.ranks() == 3 * n && ++turn % 2 == 0
                                           ? std::vector{n, 2 * n}
                                           : std::vector{job_.ranks()};
        Case c = tests::small_case(name, topology::Groups(sizes), job_.ranks() + turn % 2, 1);
        c.shape.context = {0, n};
        c.shape.seq = 12 * n;
        c.micro_batches = 2 * sharers_of(c);
        if (schedule::possible(request_of(c)))
          visit(c);
      }
  }

  void expect_right(const Case& c) { expect_right(c, job_); }

  void expect_right(const Case& c, CaseRunner& job) {
    SCOPED_TRACE(fmt::format("{} groups {} context {} layers {} M {} recompute {}",
        c.schedule,
        c.groups.text(),
        c.shape.context.count,
        c.shape.layers,
        c.micro_batches,
        name_of(c.shape.recompute)));
    EXPECT_TRUE(passes(job, c, 2));
    ++seen_;
  }

  void TearDown() override {
    if (job_.ranks() > 1)
      EXPECT_GT(seen_, 0);
  }

  int seen_ = 0;
};

TEST_F(SharedSequences, OfEveryScheduleReproduceTheSerialReference) {
  for_each_case(tests::every_schedule(), [this](const Case& c) { expect_right(c); });
}

TEST_F(SharedSequences, ReproduceItWhateverIsRecomputed) {
  for (const Recompute recompute : {Recompute::keep_attention, Recompute::none})
    for_each_case({"ddp", "tawpipe", "1f1b", "zb1"}, [&](Case c) {
      c.shape.recompute = recompute;
      c.shape.micro_batch = 3;
      expect_right(c);
    });
}

TEST_F(SharedSequences, ReproduceItInBf16WithinItsRounding) {
  for (const bool fp32_keys : {false, true})
    for_each_case({"fsdp", "tawpipe", "zb2"}, [&](Case c) {
      c.shape.dtype = model::Dtype::bf16;
      c.shape.fp32_key_gradients = fp32_keys;
      expect_right(c);
    });
}

TEST_F(SharedSequences, ReproduceItWithClippedGradients) {
  for_each_case({"ddp", "fsdp", "tawpipe", "1f1b", "zbv"}, [this](Case c) {
    c.clip_norm = 0.5;
    expect_right(c);
  });
}

TEST_F(SharedSequences, OfGroupsWithMicroBatchSizesOfTheirOwnReproduceIt) {
  for_each_case({"ddp", "fsdp", "tawpipe"}, [this](Case c) {
    for (int r = 0; r < c.ranks; ++r)
      c.micro_batch_per_rank.push_back(std::array{1, 3, 2}[r / c.shape.context.count % 3]);
    c.shape.micro_batch = 3;
    expect_right(c);
  });
}

TEST_F(SharedSequences, OfReplicasReproduceIt) {
  if (job_.ranks() % 4 != 0 && job_.ranks() != 1) {
    ++seen_;
    GTEST_SKIP() << "of two replicas of two ranks and more";
  }
  for_each_case({"fsdp", "tawpipe", "1f1b", "zb1"}, [this](Case c) {
    c.replicas = 2;
    c.groups = topology::Groups::equal(c.ranks, 2);
    if (schedule::possible(request_of(c)))
      expect_right(c);
  });
}

// One thread submits everything ahead of the work, as on a device whose transport works on streams.
TEST_F(SharedSequences, ReproduceItOnStreams) {
  CaseRunner on_streams = tests::job(engine::tests::simulated_streams);
  for_each_case({"tawpipe", "fsdp:hierarchical=on", "zb1"},
      [&](const Case& c) { expect_right(c, on_streams); });
}
}  // namespace
}  // namespace minitaw::harness
