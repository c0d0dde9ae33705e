// SPDX-License-Identifier: BSD-3-Clause
#include "engine/simulated_stream.hpp"
#include "fixtures.hpp"
#include "harness/job_test.hpp"
#include "record/schema.hpp"

namespace minitaw::harness {
namespace {
using schedule::Action, schedule::Kind, schedule::Program;
using tests::small_case;

using Verification = tests::JobOfFewRanks;

/// A job whose ranks from `first` on leave out those computations of a case that `which` names.
CaseRunner job_without(const Case& c, int first, const std::function<bool(const Action&)>& which) {
  const int rank = comm::mpi::rank_in(MPI_COMM_WORLD);
  const Program program = schedule::build_valid(request_of(c));
  const schedule::RankProgram& own = program.ranks[program.rank_of(rank)];
  const std::vector<int> units = actions_of(own, schedule::Lane::compute);
  engine::tests::Faults faults;
  for (int unit = 0; unit < static_cast<int>(units.size()); ++unit)
    if (rank >= first && which(own.actions[units[unit]]))
      faults.left_out.insert(unit);
  return tests::job(engine::tests::faulty_queues(faults));
}

TEST_F(Verification, SeesATensorThatIsNotUpdated) {
  const Case c = one_group();
  for (const bool ends : {false, true}) {
    CaseRunner job = job_without(c, 0, [&](const Action& a) {
      const bool of_ends = a.payload == schedule::Payload::embeddings;
      return a.kind == Kind::update && (ends ? of_ends : !of_ends && a.shard == 0);
    });
    const Check check = job.verify(c, 1, reference_of(c, 1));
    EXPECT_FALSE(passes(check, serial_tolerance(c)));
    if (job_.rank() != 0)
      continue;
    EXPECT_LE(check.first.gradient.worst, serial_tolerance(c).first.gradient)
        << "its gradients are right";
    EXPECT_NE(check.weights.tensor.starts_with("layers."), ends)
        << check.failure(serial_tolerance(c));
  }
}

/// The last rank, alone in the second replica where there are two, computes no loss, or no gradient
/// of the embedding, for its second micro-batch.
TEST_F(Verification, ARunThatErrsInItsFirstStepIsWrong) {
  Case c = one_group(job_.ranks() == 2 ? "fsdp" : "ddp", 2);
  if (job_.ranks() == 2) {
    c.groups = topology::Groups({1, 1});
    c.replicas = 2;
  }
  for (const auto& [kind, what] : {std::pair{Kind::loss, "the first loss"},
           {Kind::embed_backward, "the gradient of embedding"}}) {
    CaseRunner job = job_without(c, job_.ranks() - 1, [&](const Action& a) {
      return a.kind == kind && a.micro_batch == c.micro_batches / c.replicas - 1;
    });
    const CaseResult result = job.run(c, {}).result;
    const Check check = job.verify(c, 1, reference_of(c, 1));
    if (job_.rank() != 0)
      continue;
    EXPECT_TRUE(result.status == Status::wrong && result.reason.starts_with(what)) << result.reason;
    EXPECT_GT(check.first.gradient.worst, 0.01);
    EXPECT_NEAR(
        result.max_gradient_error, check.first.gradient.worst, 1e-3 * check.first.gradient.worst);
    EXPECT_NEAR(result.max_loss_error, check.first.loss, 1e-6);
    EXPECT_EQ(check.first.loss > 0.01, kind == Kind::loss);
  }
}

/// Every kernel of the last rank says a word to its own rank.
TEST_F(Verification, OfARunThatSendsWhatIsNotCountedFails) {
  namespace tools = Kokkos::Tools::Experimental;
  const Case c = one_group();
  const Training reference = reference_of(c, 1);
  const tools::EventSet before = tools::get_callbacks();
  if (job_.rank() + 1 == job_.ranks())
    tools::set_begin_parallel_for_callback([](const char*, std::uint32_t, std::uint64_t*) {
      double word = 0;
      MPI_Bcast(&word, 1, MPI_DOUBLE, 0, MPI_COMM_SELF);
    });
  const Check check = job_.verify(c, 1, reference);
  const CaseResult result = job_.run(c, {}).result;
  tools::set_callbacks(before);
  if (job_.rank() != 0)
    return;
  const std::string who = fmt::format("rank {}: MPI_Bcast", job_.ranks() - 1);
  EXPECT_THAT(result.reason, test::Says({"not counted", who}));
  EXPECT_EQ(check.failure(serial_tolerance(c)), result.reason);
}

// By hand, at most 1e11 FLOP: of two blocks 6 (2 x 1728 + 5760 + 696) of weights a token, and 6 x
// 24 x 2 S of attention.
TEST_F(Verification, OnlyACheapRunIsChecked) {
  for (const auto& [seq, micro_batches, is_cheap] :
      {std::tuple{13, 60000, true}, {13, 62000, false}, {12500, 1, true}, {13500, 1, false}}) {
    Case c = small_case("ddp", topology::Groups({1}), 2, micro_batches);
    c.shape.seq = seq;
    EXPECT_EQ(CaseRunner::has_time_to_check(c), is_cheap) << seq;
  }
}

TEST_F(Verification, ARunWhoseLossIsNotFiniteIsWrong) {
  Case c = one_group();
  c.steps = 3;
  c.warmup = 1;
  c.learning_rate = std::nan("");
  const CaseResult result = job_.run(c, {}).result;
  if (job_.rank() != 0)
    return;
  EXPECT_TRUE(std::isfinite(result.losses.at(0)) && std::isnan(result.losses.at(1)));
  EXPECT_THAT(record::make_row(result).text("verdict"),
      test::Says({"INVALID: wrong: ", "loss of step 2", "not finite"}));
}
}  // namespace
}  // namespace minitaw::harness
