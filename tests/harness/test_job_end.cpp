// SPDX-License-Identifier: BSD-3-Clause
#include "fixtures.hpp"
#include "harness/job_test.hpp"

namespace minitaw::harness {
namespace {
using test::refusal_of, tests::Job, tests::small_case;
using testing::HasSubstr;

TEST_F(Job, AnInputErrorOnOneRankIsOneOnAll) {
  Case c = one_group("tawpipe");
  c.shape.vocab = 256;  // of the bytes of a file
  const std::string missing = "/nonexistent/text";
  c.data = job_.rank() == 0 ? "synthetic" : missing;
  if (job_.ranks() < 2)
    GTEST_SKIP() << "of several ranks";
  EXPECT_THROW((void)job_.verify(c, 1, reference_of(c, 1)), InputError);
  const CaseResult result = job_.run(c, {}).result;
  EXPECT_EQ(result.status, Status::error);
  EXPECT_THAT(result.reason, HasSubstr(missing));
}

TEST(Agree, ThrowsWhatTheLowestRankThatFailsHasThrown) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD),
            first = std::min(1, comm::mpi::size_of(MPI_COMM_WORLD) - 1);
  const auto agreed = [&](const auto& error) {
    return [&] {
      agree(MPI_COMM_WORLD, [&] {
        if (rank == first)
          throw error;
        if (rank > first)
          throw std::logic_error("of another rank");
      });
    };
  };
  EXPECT_EQ(refusal_of(agreed(InputError("no such file"))), "no such file");
  EXPECT_EQ(refusal_of<AgreedOutOfMemory>(agreed(std::bad_alloc())), "out of memory");
  for (const char* words :
      {"Host memory space failed to allocate 3 TiB", "cudaMalloc: out of memory"})
    EXPECT_EQ(refusal_of<AgreedOutOfMemory>(agreed(std::runtime_error(words))), words);
  EXPECT_EQ(refusal_of<AgreedError>(agreed(std::runtime_error("it broke"))), "it broke");
}

TEST_F(Job, StopsAfterAStepForTheGravestReasonOfAnyRank) {
  using enum StopReason;
  const int ranks = std::max(1, job_.ranks() - 1);  // one waits
  Case c = small_case(ranks == 1 ? "serial" : "ddp", topology::Groups({ranks}), 2, 1);
  c.warmup = 1;
  c.steps = 2;
  int asked = 0;
  const auto stopped = [&](int step, StopReason first, StopReason last) {
    const StopReason mine = job_.rank() == ranks - 1 ? last : job_.rank() == 0 ? first : no;
    asked = 0;
    const auto stop = [&] { return ++asked == step ? mine : no; };
    return job_.run(c, {.stop = stop}).stopped;
  };
  EXPECT_EQ(stopped(2, no, time_limit), time_limit);
  EXPECT_EQ(asked, job_.rank() < ranks ? 2 : 0);
  EXPECT_EQ(stopped(1, time_limit, signal), signal);
  EXPECT_EQ(stopped(3, signal, signal), no) << "it is over";
}

TEST_F(Job, ARankOutsideOfACaseWaitsForAllOfIt) {
  if (job_.ranks() != 2)
    GTEST_SKIP() << "of two ranks";
  Case c = small_case("serial", topology::Groups({1}), 2, 1);
  c.steps = 5;
  const auto stop = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    return StopReason::no;
  };
  engine::Watchdog watchdog(std::chrono::seconds(3),  // the case lasts longer
      [](const std::string& report) { ADD_FAILURE() << report; });
  CaseRunner job(MPI_COMM_WORLD, {.step = {.watchdog = &watchdog}, .shared_devices = true});
  EXPECT_EQ(job.run(c, {.stop = stop}).stopped, StopReason::no);
}
}  // namespace
}  // namespace minitaw::harness
