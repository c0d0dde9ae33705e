// SPDX-License-Identifier: BSD-3-Clause
// Jobs that err: each planted fault is found, and named.
#include "engine/simulated_stream.hpp"
#include "harness/job_test.hpp"
#include "record/schema.hpp"

namespace minitaw::harness {
namespace {
using schedule::Action, schedule::Kind, schedule::Program, test::Says;

class Verification : public tests::Job {
protected:
  Case small_case(const std::string& settings = "") const {
    return case_of((ranks_ == 1 ? "serial " : "ddp ") + settings);
  }

  /// A job whose ranks from `first` on leave out those computations of a case that `which` names.
  CaseRunner job_without(
      const Case& c, int first, const std::function<bool(const Action&)>& which) const {
    static constexpr auto lane = schedule::Lane::compute;
    const Program program = schedule::build_valid(request_of(c));
    engine::tests::Faults faults;
    const schedule::RankProgram& own = program.ranks[program.rank_of(rank_)];
    for (int unit = 0; const int i : actions_of(own, lane)) {
      if (rank_ >= first && which(own.actions[i]))
        faults.left_out.insert(unit);
      ++unit;
    }
    return tests::job([faults](const engine::QueueOptions& options) {
      engine::Queues queues = engine::tests::faulty_queues({})(options);
      queues[index_of(lane)] = std::make_unique<engine::tests::FaultyQueue>(faults, lane, options);
      return queues;
    });
  }
};

TEST_F(Verification, SeesATensorThatIsNotUpdated) {
  const Case c = small_case("steps=1");
  for (const bool ends : {false, true}) {
    CaseRunner job = job_without(c, 0, [&](const Action& a) {
      const bool of_ends = a.payload == schedule::Payload::embeddings;
      return a.kind == Kind::update && (ends ? of_ends : !of_ends && a.shard == 0);
    });
    const Check check = job.verify(c, 1, reference_of(c));
    if (rank_ != 0)
      continue;
    EXPECT_THAT(failure(check, c), Says({"AdamW"})) << "its gradients are right";
    EXPECT_NE(check.weights.tensor.starts_with("layers."), ends) << failure(check, c);
  }
}

/// The last rank computes no loss, or no gradient of the embedding, for its last micro-batch.
TEST_F(Verification, ARunThatErrsInItsFirstStepIsWrong) {
  for (const std::string& text : rows_of(R"(
1 serial micro_batches=2
1 1f1b:slices=2
2 fsdp replicas=2 groups=2
2 tawpipe context=2 seq=20
2 zb1:slices=3
3 ddp
3 ddp context=3 seq=30
)"))
    for (const Kind kind : {Kind::loss, Kind::embed_backward}) {
      SCOPED_TRACE(text);
      const Case c = case_of(text);
      const int first = c.shape.has_slices() && kind == Kind::embed_backward ? 0 : ranks_ - 1;
      const int last = schedule::build_valid(request_of(c)).micro_batches - 1;
      CaseRunner job = job_without(
          c, first, [&](const Action& a) { return a.kind == kind && a.micro_batch == last; });
      const CaseResult result = job.run(c, {}).result;
      const Check check = job.verify(c, c.steps, reference_of(c));
      if (rank_ != 0)
        continue;
      const std::string what = kind == Kind::loss ? "the first loss" : "the gradient of embedding";
      EXPECT_EQ(result.status, Status::wrong);
      for (const std::string& said : {result.reason, failure(check, c)})
        EXPECT_THAT(said, testing::StartsWith(what));
      const double error = check.first.gradient.worst;  // not-a-number, of what nobody wrote
      EXPECT_TRUE(std::isnan(error) || std::abs(result.max_gradient_error / error - 1) < 1e-3);
      EXPECT_NEAR(result.max_loss_error, check.first.loss, 1e-6);
      EXPECT_EQ(check.first.loss > 0.01, kind == Kind::loss);
    }
}

/// Of the last rank, the first slot or the scratch of kernels is larger than anything uses.
TEST_F(Verification, SeesMemoryThatNothingWrites) {
  constexpr std::size_t more = 1 << 20;
  const Case c = small_case();
  for (const bool slot : {true, false}) {
    const auto plan = std::make_shared<PlannedCase>(*plan_of(c));
    schedule::Footprint& last = plan->memory.back();
    auto& [name, bytes] = last.slots[0];
    (slot ? bytes : last.workspace) += more;
    last.by_kind[index_of(slot ? memory_of(name.cls) : schedule::Memory::buffers)] += more;
    const Check check = job_.verify(c, c.steps, reference_of(c), plan);
    if (rank_ == 0) {
      EXPECT_THAT(failure(check, c), Says({fmt::format("rank {}: ", ranks_ - 1), "never written"}));
    }
  }
}

/// Every kernel of the last rank says a word to its own rank.
TEST_F(Verification, OfARunThatSendsWhatIsNotCountedFails) {
  namespace tools = Kokkos::Tools::Experimental;
  const Case c = small_case();
  const Training reference = reference_of(c);
  const tools::EventSet before = tools::get_callbacks();
  if (rank_ + 1 == ranks_)
    tools::set_begin_parallel_for_callback([](const char*, std::uint32_t, std::uint64_t*) {
      double word = 0;
      MPI_Bcast(&word, 1, MPI_DOUBLE, 0, MPI_COMM_SELF);
    });
  const Check check = job_.verify(c, c.steps, reference);
  const CaseResult result = job_.run(c, {}).result;
  tools::set_callbacks(before);
  if (rank_ != 0)
    return;
  EXPECT_THAT(result.reason, Says({"not counted", fmt::format("rank {}: MPI_Bcast", ranks_ - 1)}));
  EXPECT_EQ(failure(check, c), result.reason);
}

// By hand, at most 1e11 FLOP: of two blocks 6 (2 x 1728 + 5760 + 696) of weights a token, and 6 x
// 24 x 2 S of attention.
TEST_F(Verification, OnlyACheapRunIsChecked) {
  for (const int count : {60000, 62000})
    EXPECT_EQ(CaseRunner::has_time_to_check(
                  case_of(fmt::format("serial layers=2 micro_batches={}", count))),
        count == 60000);
}

TEST_F(Verification, ARunWhoseLossIsNotFiniteIsWrong) {
  Case c = small_case("steps=3");
  c.learning_rate = std::nan("");
  const CaseResult result = job_.run(c, {}).result;
  if (rank_ != 0)
    return;
  EXPECT_THAT(record::make_row(result).text("verdict"),
      Says({"INVALID: wrong: ", "loss of step 2", "not finite"}));
}

TEST_F(Verification, AnInputErrorOnOneRankIsOneOnAll) {
  if (ranks_ < 2)
    GTEST_SKIP() << "of several ranks";
  Case c = small_case("vocab=256");  // of the bytes of a file
  const std::string missing = "/nonexistent/text";
  if (rank_ > 0)
    c.data = missing;
  EXPECT_THROW((void)job_.verify(c, 1, reference_of(c)), AgreedError);
  const CaseResult result = job_.run(c, {}).result;
  EXPECT_EQ(result.status, Status::error);
  EXPECT_THAT(result.reason, testing::HasSubstr(missing));
}

TEST(Agree, ThrowsWhatTheLowestRankThatFailsHasThrown) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD),
            first = std::min(1, comm::mpi::size_of(MPI_COMM_WORLD) - 1);
  using enum AgreedError::Cause;
  const auto expect = [](AgreedError::Cause cause, const std::string& words, const auto& work) {
    try {
      work();
      ADD_FAILURE() << words;
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.what(), words);
      EXPECT_EQ(error.cause, cause);
    }
  };
  const auto expect_all = [&](AgreedError::Cause cause, const auto& error) {
    const auto fail_from = [&](int from) {
      return [&, from] {
        if (rank >= from)
          throw error;
      };
    };
    const std::string words = cause == memory && error.what() == std::string("std::bad_alloc")
                                  ? "out of memory"
                                  : error.what();
    const std::string host = fmt::format("node {}", rank);
    expect(cause, words, [&] { agree(MPI_COMM_WORLD, fail_from(0), host); });
    expect(cause, words, [&] { agree_on_root(MPI_COMM_WORLD, fail_from(0)); });
    const std::string of_rank = first > 0 ? "rank 1 on node 1: " : "";
    expect(cause, of_rank + words, [&] { agree(MPI_COMM_WORLD, fail_from(first), host); });
  };
  expect_all(input, InputError("no such file"));
  expect_all(memory, std::bad_alloc());
  for (const char* words :
      {"Host memory space failed to allocate 3 TiB", "cudaMalloc: out of memory"})
    expect_all(memory, std::runtime_error(words));
  expect_all(other, std::runtime_error("it broke"));
  const auto fail_otherwise = [&] { throw InputError("rank {} failed", rank); };
  const std::string of_first = first > 0 ? "rank 0: " : "";
  expect(input, of_first + "rank 0 failed", [&] { agree(MPI_COMM_WORLD, fail_otherwise); });
}

TEST_F(Verification, StopsAfterAStepForTheGravestReasonOfAnyRank) {
  using enum StopReason;
  const int ranks = std::max(1, ranks_ - 1);  // one waits
  const Case c = case_of(fmt::format("{} ranks={} groups=1", ranks == 1 ? "serial" : "ddp", ranks));
  int asked = 0;
  const auto stopped = [&](int step, StopReason first, StopReason last) {
    const StopReason mine = rank_ == ranks - 1 ? last : rank_ == 0 ? first : no;
    asked = 0;
    const auto stop = [&] { return ++asked == step ? mine : no; };
    return job_.run(c, {.stop = stop}).stopped;
  };
  EXPECT_EQ(stopped(2, no, time_limit), time_limit);
  EXPECT_EQ(asked, rank_ < ranks ? 2 : 0);
  EXPECT_EQ(stopped(1, time_limit, signal), signal);
  EXPECT_EQ(stopped(3, signal, signal), no) << "it is over";
}

/// Two steps of it last longer than the watchdog of the other rank.
TEST_F(Verification, ARankOutsideOfACaseWaitsForAllOfIt) {
  if (ranks_ != 2)
    GTEST_SKIP() << "of two ranks";
  const auto stop = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    return StopReason::no;
  };
  engine::Watchdog watchdog(
      std::chrono::seconds(1), [](const std::string& report) { ADD_FAILURE() << report; });
  CaseRunner job(MPI_COMM_WORLD, {.step = {.watchdog = &watchdog}, .shared_devices = true});
  EXPECT_EQ(job.run(case_of("serial"), {.stop = stop}).stopped, StopReason::no);
}
}  // namespace
}  // namespace minitaw::harness
