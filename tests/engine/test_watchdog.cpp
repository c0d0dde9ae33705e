#include <gtest/gtest.h>
#include <mpi.h>

#include <mutex>

#include "cases.hpp"
#include "engine/trainer.hpp"

namespace minitaw::engine {
namespace {

using schedule::Action;
using schedule::Kind;

/// Rank 1 never sends its last gradient: the others hang, and must say in what.
void lose_a_message(schedule::Program& program) {
  for (Action& a : program.ranks[1].actions)
    if (a.kind == Kind::send && a.payload == schedule::Payload::gradient) {
      a.kind = Kind::accumulate;  // something harmless in place of the send, so that counts stay
      a.slots[1] = a.slots[0];
      return;
    }
  FAIL() << "no gradient is sent";
}

TEST(Watchdog, NamesThePendingActionAndEndsTheStep) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::mutex mutex;
  std::string said;
  TrainerOptions options;
  options.stall_limit = std::chrono::milliseconds(500);
  options.hooks.inject_fault = lose_a_message;
  options.on_stall = [&](const std::string& report) {
    const std::scoped_lock lock(mutex);
    said = report;
  };
  const deck::Case c = tests::small_case("tawpipe", topology::Groups({1, 1}), 2, 1);
  Trainer trainer(c, rank, tests::by_mpi, options);
  trainer.prepare();
  std::string reason;
  try {
    (void)trainer.step();
  } catch (const Stalled& stalled) {
    reason = stalled.what();
  }
  const std::string who = "rank " + std::to_string(rank) + ": no lane has moved for 0.5 s";
  EXPECT_TRUE(reason.starts_with(who)) << reason;
  EXPECT_EQ(reason.find('\n'), std::string::npos) << reason;
  const std::scoped_lock lock(mutex);
  EXPECT_NE(said.find("rank " + std::to_string(rank)), std::string::npos) << said;
  if (rank == 0) {
    EXPECT_NE(said.find("\n  gradients_in in tick 5 recv G0 c0 <- r1"), std::string::npos) << said;
    EXPECT_NE(reason.find(", gradients_in in tick 5 recv G0 c0 <- r1"), std::string::npos) << reason;
  }
}

}  // namespace
}  // namespace minitaw::engine
