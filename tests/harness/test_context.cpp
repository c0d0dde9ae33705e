// SPDX-License-Identifier: BSD-3-Clause
// Ranks that share sequences compute what one rank does. Ranks share few cores, so each number of
// them executes a part of the cases: all numbers together have every kind.
#include "engine/simulated_stream.hpp"
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
using model::Recompute;

class SharedSequences : public tests::Job {
protected:
  /// Calls `visit` for a case of each schedule, on more than three ranks for every second or third.
  /// `turn` and its place choose how many ranks share a sequence, of 12 tokens for each of them, in
  /// which groups.
  void for_each_case(const std::vector<std::string>& schedules, int turn, const auto& visit) {
    const int ranks = job_.ranks(), step = ranks <= 3 ? 1 : ranks <= 6 ? 2 : 3;
    for (const std::string& name : schedules) {
      const std::optional<Case> c = case_of(name, turn / step);
      if (c && turn % step == ranks / 2 % step)
        visit(*c);
      ++turn;
    }
  }

  void expect_right(const Case& c) { expect_right(c, job_); }

  void expect_right(const Case& c, CaseRunner& job) {
    SCOPED_TRACE(fmt::format("{} groups {} context {} replicas {} layers {} B {} M {} recompute {}",
        c.schedule,
        c.groups.text(),
        c.shape.context.count,
        c.replicas,
        c.shape.layers,
        c.shape.micro_batch,
        c.micro_batches,
        name_of(c.shape.recompute)));
    EXPECT_TRUE(passes(job, c, 2));
    ++seen_;
  }

  /// Of two values, another for each place and number of ranks.
  template <class T>
  T one_of(int place, T first, T second) const {
    return (place + job_.ranks() / 2) % 2 == 0 ? first : second;
  }

  void TearDown() override { EXPECT_TRUE(seen_ > 0 || IsSkipped()); }

  int replicas_ = 1;
  int seen_ = 0;

private:
  /// One group; one of n ranks and one of all others; two equal ones.
  [[nodiscard]] std::vector<topology::Groups> groups_of(int n) const {
    const int ranks = job_.ranks();
    std::vector<topology::Groups> all = {topology::Groups({ranks})};
    if (ranks > n && ranks != 2 * n)
      all.push_back(topology::Groups({n, ranks - n}));
    if (ranks % (2 * n) == 0)
      all.push_back(topology::Groups::equal(ranks, 2));
    return all;
  }

  /// Nothing: the schedule has no such case.
  [[nodiscard]] std::optional<Case> case_of(const std::string& name, int turn) const {
    const int ranks = job_.ranks();
    std::vector<Case> some;
    for (const int n : {2, 3, 4})
      if (ranks % n == 0)
        for (const topology::Groups& groups : groups_of(n)) {
          Case c = tests::small_case(name, groups, ranks + turn % 2, 1);
          c.replicas = replicas_;
          c.shape.context = {0, n};
          c.shape.seq = 12 * n;
          c.micro_batches = 2 * sharers_of(c);
          try {
            if (schedule::possible(request_of(c)))
              some.push_back(c);
          } catch (const InputError&) {  // replicas of unlike groups
          }
        }
    return some.empty() ? std::nullopt : std::optional(some[turn % some.size()]);
  }
};

TEST_F(SharedSequences, OfEveryScheduleReproduceTheSerialReference) {
  for_each_case(
      tests::some_schedules(job_.ranks(), 0), 0, [this](const Case& c) { expect_right(c); });
}

TEST_F(SharedSequences, ReproduceItWhateverIsRecomputed) {
  for_each_case({"ddp", "tawpipe", "1f1b", "zb1"}, 1, [this](Case c) {
    c.shape.recompute = one_of(seen_, Recompute::keep_attention, Recompute::none);
    c.shape.micro_batch = one_of(seen_ / 2, 1, 3);
    expect_right(c);
  });
}

TEST_F(SharedSequences, ReproduceItInBf16WithinItsRounding) {
  for_each_case({"fsdp", "tawpipe", "zb2"}, 2, [this](Case c) {
    c.shape.dtype = model::Dtype::bf16;
    c.shape.fp32_key_gradients = one_of(seen_, false, true);
    expect_right(c);
  });
}

TEST_F(SharedSequences, ReproduceItWithClippedGradients) {
  for_each_case({"ddp", "fsdp", "tawpipe", "1f1b", "zbv"}, 3, [this](Case c) {
    c.clip_norm = 0.5;
    expect_right(c);
  });
}

TEST_F(SharedSequences, OfReplicasReproduceIt) {
  if (job_.ranks() % 4 != 0)
    GTEST_SKIP() << "of two replicas of two ranks and more";
  replicas_ = 2;
  for_each_case({"fsdp", "tawpipe", "1f1b", "zb1"}, 5, [this](const Case& c) { expect_right(c); });
}

// One thread submits everything ahead of the work, as on a device whose transport works on streams.
TEST_F(SharedSequences, ReproduceItOnStreams) {
  CaseRunner on_streams = tests::job(engine::tests::simulated_streams);
  for_each_case({"tawpipe", "fsdp:hierarchical=on", "zb1"}, 6, [&](const Case& c) {
    expect_right(c, on_streams);
  });
}
}  // namespace
}  // namespace minitaw::harness
