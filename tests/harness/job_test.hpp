// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <gmock/gmock.h>
#include "harness/cases.hpp"

namespace minitaw::harness::tests {
/// A job of all ranks that executes cases.
class Job : public ::testing::Test {
protected:
  /// The smallest case of all ranks in one group, with a block for each; serial on one rank.
  [[nodiscard]] Case one_group(const std::string& schedule = "ddp", int per_rank = 1) const {
    const int ranks = job_.ranks();
    return small_case(ranks == 1 ? "serial" : schedule, topology::Groups({ranks}), ranks, per_rank);
  }

  /// Rank 0 judges.
  [[nodiscard]] Training reference_of(const Case& c, int steps) const {
    return job_.rank() == 0 ? serial_reference(c, steps) : Training{};
  }

  /// The verdict is rank 0's; every rank asserts the same.
  static bool passes(const Check& check, const Tolerance& tolerance) {
    int ok = check.passes(tolerance) ? 1 : 0;
    MPI_Bcast(&ok, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return ok == 1;
  }

  [[nodiscard]] bool passes(CaseRunner& job, const Case& c, int steps) const {
    const Check check = job.verify(c, steps, reference_of(c, steps));
    Case executed = c;
    executed.steps = steps;
    const Tolerance tolerance = serial_tolerance(executed);
    if (job.rank() == 0 && !check.passes(tolerance))
      fmt::print("  {}: {}\n", c.schedule, check.failure(tolerance));
    return passes(check, tolerance);
  }

  /// Random groups that the schedule takes; equal ones in the end.
  [[nodiscard]] Case random_case(
      const std::string& name, int per_rank, std::mt19937& random) const {
    const int ranks = job_.ranks();
    const int layers = ranks + static_cast<int>(random() % (ranks + 2));
    const Case c = small_case(name, random_groups(ranks, random), layers, per_rank);
    const int equal = ranks % 2 == 0 && random() % 2 == 0 ? 2 : ranks;
    return possible(c) ? c
                       : small_case(name, topology::Groups::equal(ranks, equal), layers, per_rank);
  }

  CaseRunner job_ = job();
  int steps_ = job_.ranks() <= 4 ? 3 : 2;  ///< more ranks share few cores
};

/// A test that is the same on more than three ranks, which share few cores.
class JobOfFewRanks : public Job {
protected:
  void SetUp() override {
    if (job_.ranks() > 3)
      GTEST_SKIP() << "it is the same on more ranks, which share few cores";
  }
};
}  // namespace minitaw::harness::tests
