// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <mpi.h>

namespace {

// Only rank 0 tells of passed tests. A failure is told by the rank where it happened, and ends all
// ranks: the others may be waiting for it, and would wait for the time limit.
class FailureListener : public testing::EmptyTestEventListener {
public:
  explicit FailureListener(int rank) : rank_(rank) {}

private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (rank_ == 0 || !result.failed())
      return;
    fmt::print(stderr,
        "rank {}: {}:{}: {}\n",
        rank_,
        result.file_name() ? result.file_name() : "?",
        result.line_number(),
        result.message());
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    if (info.result()->Failed())
      MPI_Abort(MPI_COMM_WORLD, 1);
  }

  int rank_;
};

class MpiEnvironment : public testing::Environment {
  void SetUp() override {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    ASSERT_EQ(provided, MPI_THREAD_MULTIPLE);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    if (rank != 0)
      delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailureListener(rank));
  }

  void TearDown() override { MPI_Finalize(); }
};

[[maybe_unused]] const auto* const environment =
    testing::AddGlobalTestEnvironment(new MpiEnvironment);

}  // namespace
