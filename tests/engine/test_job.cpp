#include "engine/case_runner.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"

#include "cases.hpp"
#include "engine/memory.hpp"
#include "engine/simulated_stream.hpp"
#include "schedule/validate.hpp"

namespace minitaw::engine {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Program;
using schedule::SlotClass;
using tests::random_groups;
using tests::small_case;

CaseRunner job() {
  return CaseRunner(MPI_COMM_WORLD, {.stall_limit = std::chrono::seconds(60),
                                     .waiting = comm::mpi::wait_policy(1, 24),
                                     .shared_devices = true});
}

/// The verdict is rank 0's; every rank asserts the same.
bool passes(const Check& check, const Tolerance& tolerance) {
  int ok = check.passes(tolerance) ? 1 : 0;
  MPI_Bcast(&ok, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return ok == 1;
}

bool passes(CaseRunner& job, const deck::Case& c, int steps, const Hooks& hooks = {}) {
  const Reference reference = job.rank() == 0 ? serial_reference(c, steps) : Reference{};
  const Check check = job.verify(c, steps, reference, hooks);
  const Tolerance tolerance = serial_tolerance(c);
  if (job.rank() == 0 && !check.passes(tolerance))
    fmt::print("  {}: {}\n", c.schedule, check.failure(tolerance));
  return passes(check, tolerance);
}

/// Random groups that the schedule takes; equal ones in the end.
deck::Case random_case(const std::string& name, int ranks, int per_rank, std::mt19937& random) {
  const int layers = ranks + static_cast<int>(random() % (ranks + 2));
  const deck::Case c = small_case(name, random_groups(ranks, random), layers, per_rank);
  const int equal = ranks % 2 == 0 && random() % 2 == 0 ? 2 : ranks;
  return tests::possible(c) ? c : small_case(name, topology::Groups::equal(ranks, equal), layers, per_rank);
}

void reproduce_the_reference(CaseRunner& all, const std::vector<std::string>& schedules, int trials,
                             const MakeQueues& make_queues) {
  std::mt19937 random(5);
  for (const std::string& name : schedules)
    for (int trial = 0; trial < trials; ++trial) {
      const deck::Case c = random_case(name, all.ranks(), 1 + static_cast<int>(random() % 3), random);
      SCOPED_TRACE(
          fmt::format("{} groups {} layers {} M {}", name, c.groups.text(), c.shape.layers, c.micro_batches));
      EXPECT_TRUE(passes(all, c, 3, {{}, make_queues}));
    }
}

TEST(Job, EveryScheduleReproducesTheSerialReference) {
  CaseRunner all = job();
  reproduce_the_reference(all, tests::every_schedule(), all.ranks() < 5 ? 2 : 1, make_queues);
}

// One thread submits everything ahead of the work, as on a device whose transport works on streams.
TEST(Job, SchedulesReproduceItOnStreams) {
  CaseRunner all = job();
  reproduce_the_reference(all, tests::some_schedules(all.ranks(), 0), 1, tests::simulated_streams);
}

TEST(Job, Bf16ReproducesItWithinItsRounding) {
  CaseRunner all = job();
  std::mt19937 random(8);
  for (const std::string& name : tests::some_schedules(all.ranks(), 1)) {
    deck::Case c = random_case(name, all.ranks(), 2, random);
    c.shape.dtype = model::Dtype::bf16;
    SCOPED_TRACE(fmt::format("{} groups {}", name, c.groups.text()));
    EXPECT_TRUE(passes(all, c, 3));
  }
}

TEST(Job, CopiesOfEveryScheduleReproduceIt) {
  CaseRunner all = job();
  if (all.ranks() % 2 != 0) GTEST_SKIP() << "of two equal copies";
  for (const std::string& name : tests::some_schedules(all.ranks(), 2)) {
    deck::Case c = small_case(name, topology::Groups::equal(all.ranks(), 2), all.ranks() / 2 + 1, 2);
    c.replicas = 2;
    if (!schedule::entry_of(schedule::parse_spec(name).name).replicable) continue;
    SCOPED_TRACE(name);
    EXPECT_TRUE(passes(all, c, 3));
  }
}

/// Ranks 0, 1, 2, ... have 1, 3, 2, 1, 3, ... sequences per micro-batch.
deck::Case with_own_sizes(deck::Case c) {
  for (int r = 0; r < c.ranks; ++r) c.micro_batch_per_rank.push_back(std::array{1, 3, 2}[r % 3]);
  c.shape.micro_batch = 3;
  return c;
}

TEST(Job, RanksWithTheirOwnMicroBatchSizesReproduceTheReference) {
  CaseRunner all = job();
  std::mt19937 random(21);
  for (const std::string& name : tests::some_schedules(all.ranks(), 0)) {
    if (schedule::entry_of(schedule::parse_spec(name).name).passes_activations) continue;
    const deck::Case c = with_own_sizes(random_case(name, all.ranks(), 2, random));
    SCOPED_TRACE(fmt::format("{} groups {}", name, c.groups.text()));
    EXPECT_TRUE(passes(all, c, 3));
  }
}

TEST(Job, TheirMemoryIsPlannedRankByRank) {
  CaseRunner all = job();
  deck::Case c = with_own_sizes(small_case("tawpipe", topology::Groups({all.ranks()}), all.ranks(), 1));
  c.steps = 3;
  const record::CaseResult result = all.run(c, {}).result;
  if (all.rank() != 0) return;
  EXPECT_EQ(result.status, record::Status::ok) << result.reason;
  const schedule::Program program = program_of(c);
  const auto planned = schedule::memory(program, model::make_layout(c.shape, schedule::cut_of(program)),
                                        c.micro_batch_per_rank);
  for (std::size_t r = 0; r < planned.size(); ++r)
    EXPECT_TRUE(std::ranges::equal(result.memory[r].measured, planned[r].by_kind)) << "rank " << r;
  if (all.ranks() > 1) {
    EXPECT_NE(result.memory[0].measured, result.memory[1].measured);
  }
}

void counted_and_measured_as_planned(CaseRunner& all, deck::Case c) {
  SCOPED_TRACE(fmt::format("{} groups {}", c.schedule, c.groups.text()));
  c.steps = 3;
  c.warmup = 1;
  const record::CaseResult result = all.run(c, {}).result;
  if (all.rank() != 0) return;
  EXPECT_EQ(result.status, record::Status::ok) << result.reason;
  EXPECT_EQ(result.counted_bytes, result.planned_bytes);
  ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(all.ranks()));
  for (const record::RankMemory& m : result.memory) EXPECT_EQ(m.planned, m.measured);
  EXPECT_LE(result.memory[0].process_peak, peak_memory() / 15 * 16) << "the kernel counts in batches";
  EXPECT_GE(result.memory[0].process_peak, peak_memory() / 2) << "hardly anything was taken behind the case";
  EXPECT_EQ(result.losses.size(), 4U);
  EXPECT_EQ(result.seconds.size(), 3U);
  EXPECT_GE(result.max_gradient_error, 0) << "a case this small must be checked";
}

TEST(Job, CountedBytesAndMeasuredMemoryEqualThePlan) {
  CaseRunner all = job();
  std::mt19937 random(3);
  for (const std::string& name : tests::some_schedules(all.ranks(), 1))
    counted_and_measured_as_planned(all, random_case(name, all.ranks(), 2, random));
}

TEST(Job, RanksBeyondTheCaseWait) {
  CaseRunner all = job();
  if (all.ranks() < 2) GTEST_SKIP() << "of several ranks";
  EXPECT_TRUE(passes(all, small_case("tawpipe", topology::Groups({all.ranks() - 1}), all.ranks(), 1), 1));
}

/// First action of that kind on a rank, from the end if `last`.
Action& find(Program& program, int rank, Kind kind) {
  for (Action& a : program.ranks[rank].actions)
    if (a.kind == kind) return a;
  throw std::runtime_error("no such action");
}

// What the verification is for: the defects of published codes, planted behind the validator's back, must be
// seen.

TEST(Verification, SeesASwappedShard) {
  CaseRunner all = job();
  if (all.ranks() < 2) GTEST_SKIP() << "of several ranks";
  const auto own_weights_instead = [](Program& p) {
    find(p, 1, Kind::forward).slots[0] = {SlotClass::owned, 0};
  };
  EXPECT_FALSE(passes(all, small_case("tawpipe", topology::Groups({all.ranks()}), all.ranks(), 1), 1,
                      Hooks{own_weights_instead}));
}

TEST(Verification, SeesALostMicroBatch) {
  CaseRunner all = job();
  const auto first_one_twice = [](Program& p) {
    const int first = find(p, 0, Kind::embed).micro_batch;
    for (Action& a : p.ranks[0].actions)
      if (a.micro_batch >= 0) a.micro_batch = first;
  };
  EXPECT_FALSE(passes(
      all,
      small_case(all.ranks() == 1 ? "serial" : "tawpipe", topology::Groups({all.ranks()}), all.ranks(), 2), 1,
      Hooks{first_one_twice}));
}

TEST(Verification, SeesAWrongGradient) {
  CaseRunner all = job();
  if (all.ranks() < 2) GTEST_SKIP() << "of several ranks";
  // The gradient of one micro-batch overwrites the total instead of being added.
  const auto overwritten = [](Program& p) {
    for (Action& a : p.ranks[0].actions)
      if (a.kind == Kind::backward && a.accumulates) a.accumulates = false;
  };
  EXPECT_FALSE(
      passes(all, small_case("ddp", topology::Groups({all.ranks()}), all.ranks(), 2), 1, Hooks{overwritten}));
}

TEST(Verification, SeesOneWrongGradientValue) {
  CaseRunner all = job();
  const deck::Case c = small_case("ddp", topology::Groups({all.ranks()}), all.ranks(), 1);
  for (const bool last : {false, true}) {  // no loss behind the last step can tell
    Reference reference = all.rank() == 0 ? serial_reference(c, 2) : Reference{};
    if (all.rank() == 0) {
      auto& values = (last ? reference.later : reference.gradients)[1].values;
      *std::ranges::max_element(values, {}, [](float v) { return std::abs(v); }) *= 1.01F;
    }
    EXPECT_FALSE(passes(all.verify(c, 2, reference), serial_tolerance(c)));
  }
}

TEST(Verification, SeesALayerThatIsNotUpdated) {
  CaseRunner all = job();
  const deck::Case c = small_case(all.ranks() == 1 ? "serial" : "ddp", topology::Groups({all.ranks()}), 3, 1);
  const auto not_updated = [](Program& p) {
    for (schedule::RankProgram& rank : p.ranks)
      for (Action& a : rank.actions)
        if (a.kind == Kind::update && a.payload != schedule::Payload::embeddings && a.shard == 0)
          a.kind = Kind::join;
  };
  const Reference reference = all.rank() == 0 ? serial_reference(c, 1) : Reference{};
  const Check check = all.verify(c, 1, reference, Hooks{not_updated});
  EXPECT_FALSE(passes(check, serial_tolerance(c)));
  if (all.rank() != 0) return;
  EXPECT_LE(check.first.gradient.worst, serial_tolerance(c).first.gradient) << "its gradients are right";
  EXPECT_TRUE(check.weights.tensor.starts_with("layers.")) << check.failure(serial_tolerance(c));
}

/// One key, so that queries and keys have no gradient but rounding noise; one token, so that loss and
/// gradients are zero; both.
TEST(Verification, TakesCasesWithoutAnyGradientForRight) {
  CaseRunner all = job();
  for (const auto& [seq, vocab] : {std::pair{1, 29}, {13, 1}, {1, 1}})
    for (const std::string& name : tests::some_schedules(all.ranks() < 3 ? 5 : all.ranks(), 0)) {
      deck::Case c = small_case(name, topology::Groups({all.ranks()}), all.ranks() + 1, 2);
      c.shape.seq = seq;
      c.shape.vocab = vocab;
      if (!tests::possible(c)) continue;
      SCOPED_TRACE(fmt::format("{} S {} V {}", name, seq, vocab));
      EXPECT_TRUE(passes(all, c, 3));
    }
}

TEST(Job, AnInputErrorOnOneRankIsOneOnAll) {
  CaseRunner all = job();
  deck::Case c = small_case("tawpipe", topology::Groups({all.ranks()}), all.ranks(), 1);
  c.data = all.rank() == 0 ? "synthetic" : "/nonexistent/text";
  if (all.ranks() < 2) GTEST_SKIP() << "of several ranks";
  EXPECT_THROW((void)all.verify(c, 1, all.rank() == 0 ? serial_reference(c, 1) : Reference{}), InputError);
}

}  // namespace
}  // namespace minitaw::engine
