// The times that a run records against a clock of the test's own. A kernel of every step is held up, so that
// the step's time is known to a few milliseconds from both sides.
#include <gtest/gtest.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>

#include "cases.hpp"
#include "engine/job.hpp"

namespace minitaw::engine {
namespace {

/// Notes when the kernels of a step began and ended, from the tokens' embedding to the optimiser, and holds
/// every call of the optimiser up.
class SlowSteps {
public:
  static constexpr double delay = 0.01;

  SlowSteps() : before_(Kokkos::Tools::Experimental::get_callbacks()) {
    Kokkos::Tools::Experimental::set_begin_parallel_for_callback(begin);
    Kokkos::Tools::Experimental::set_end_parallel_for_callback([](std::uint64_t) { last_ = MPI_Wtime(); });
    first_ = last_ = 0;
  }
  ~SlowSteps() { Kokkos::Tools::Experimental::set_callbacks(before_); }
  SlowSteps(const SlowSteps&) = delete;
  SlowSteps& operator=(const SlowSteps&) = delete;

  /// From the step's first kernel to the end of its last one; the next step begins.
  static double kernels() {
    const double seconds = last_ - first_;
    first_ = 0;
    return seconds;
  }

private:
  static void begin(const char* name, std::uint32_t, std::uint64_t*) {
    const std::string_view kernel = name;
    if (kernel == "minitaw::embedding_forward" && first_ == 0) first_ = MPI_Wtime();
    if (kernel == "minitaw::adamw") std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  }

  Kokkos::Tools::Experimental::EventSet before_;
  static inline std::atomic<double> first_ = 0, last_ = 0;
};

TEST(StepTimes, AgreeWithAClockOutside) {
  Job job(
      MPI_COMM_WORLD,
      {.patience = std::chrono::seconds(60), .waiting = comm::mpi::patience(1, 24), .shared_devices = true});
  deck::Case c =
      tests::small_case(job.ranks() == 1 ? "serial" : "ddp", topology::Groups({job.ranks()}), 2, 1);
  c.steps = 4;
  c.warmup = 1;
  std::vector<double> least, ends = {MPI_Wtime()};
  Limits limits;
  limits.leave = [&] {
    least.push_back(SlowSteps::kernels());
    ends.push_back(MPI_Wtime());
    return Leave::no;
  };
  const SlowSteps slow;
  const record::CaseResult result = job.run(c, limits).result;
  ends.push_back(MPI_Wtime());
  ASSERT_EQ(least.size(), 5U) << result.reason;
  for (const double seconds : least) EXPECT_GE(seconds, SlowSteps::delay);
  if (job.rank() != 0) return;
  ASSERT_EQ(result.status, record::Status::ok) << result.reason;
  ASSERT_EQ(result.seconds.size(), 4U);
  for (std::size_t s = 0; s < 4; ++s) {
    const double seconds = result.seconds[s][0], most = ends[s + 2] - ends[s + 1];
    EXPECT_GE(seconds, least[s + 1]) << "less than the step's kernels, step " << s;
    EXPECT_LE(seconds, most) << "more than the step and what surrounds it, step " << s;
    for (const double rank : result.seconds[s]) {
      EXPECT_GE(rank, SlowSteps::delay);
      EXPECT_LE(rank, ends[s + 3] - ends[s + 1]) << "another rank's may end after that of this one";
    }
  }
  const auto step = static_cast<std::size_t>(result.accounted_step);
  EXPECT_GE(result.accounted_length, least[step + 1]);
  EXPECT_LE(result.accounted_length, ends[step + 3] - ends[step + 1]);
}

}  // namespace
}  // namespace minitaw::engine
