// SPDX-License-Identifier: BSD-3-Clause
// Kernels of a host build with teams of as many threads as MINITAW_TEAM_THREADS says, in every test
// that links this. Kokkos allows as many as OMP_NUM_THREADS.
#include <array>
#include <cstdlib>
#include <gtest/gtest.h>
#include "kernels/detail/loops.hpp"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#include <thread>

// The thread sanitizer sees neither libgomp nor fences: calls pass here (--wrap), which say what
// happens before what.

/// A parallel region begins after all that its caller did, and ends before all that the caller does
/// next.
struct Region {
  void (*body)(void*);
  void* data;
  char begin, end;

  static void run(void* pointer) {
    auto* const region = static_cast<Region*>(pointer);
    __tsan_acquire(&region->begin);
    region->body(region->data);
    __tsan_release(&region->end);
  }
};

extern "C" {
void __real_GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);

void __wrap_GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  Region region{body, data, 0, 0};
  __tsan_release(&region.begin);
  __real_GOMP_parallel(&Region::run, &region, threads, flags);
  __tsan_acquire(&region.end);
}

/// Barriers of Kokkos's teams are relaxed additions between fences: as strong as ordered ones.
int __real___tsan_atomic32_fetch_add(volatile int*, int, int);

int __wrap___tsan_atomic32_fetch_add(volatile int* address, int value, int) {
  return __real___tsan_atomic32_fetch_add(address, value, __ATOMIC_SEQ_CST);
}
}

/// Instead of the one in Kokkos's library, whose additions are not seen.
void Kokkos::Impl::HostBarrier::impl_backoff_wait_until_equal(
    int* ptr, const int v, const bool) noexcept {
  while (!test_equal(ptr, v))
    std::this_thread::yield();
}
#endif

namespace minitaw::kernels::detail {
namespace {
int asked_for() {
  const char* const text = std::getenv("MINITAW_TEAM_THREADS");
  return text ? std::atoi(text) : 1;
}

class TeamThreads : public testing::Environment {
  void SetUp() override { threads_on_host = asked_for(); }
};

[[maybe_unused]] const auto* const environment = testing::AddGlobalTestEnvironment(new TeamThreads);

TEST(TeamThreads, AreAsManyAsAskedFor) {
  const ExecutionSpace exec;
  std::array<int, 5> sizes{};
  Kokkos::parallel_for("minitaw::team_threads", row_policy(exec, 5), [&](const RowTeam& team) {
    Kokkos::single(Kokkos::PerTeam(team), [&] { sizes[team.league_rank()] = team.team_size(); });
  });
  exec.fence();
  for (const int size : sizes)
    EXPECT_EQ(size, asked_for());
}
}  // namespace
}  // namespace minitaw::kernels::detail
