// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into the program: all clocks of libc run at half their speed from the first call on.
#include <ctime>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

namespace {
constexpr long long billion = 1'000'000'000;

long long first[16];  ///< of each clock, ns; 0: not read yet

long long halved(clockid_t clock) {
  timespec now{};
  syscall(SYS_clock_gettime, clock, &now);
  const long long right = billion * now.tv_sec + now.tv_nsec;
  if (clock < 0 || clock >= 16)
    return right;
  long long unread = 0;
  __atomic_compare_exchange_n(
      &first[clock], &unread, right, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return first[clock] + (right - first[clock]) / 2;
}
}  // namespace

extern "C" {
int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long long moment = halved(clock);
  *now = {static_cast<time_t>(moment / billion), static_cast<long>(moment % billion)};
  return 0;
}

int gettimeofday(timeval* now, void*) noexcept {
  const long long moment = halved(CLOCK_REALTIME);
  *now = {static_cast<time_t>(moment / billion), static_cast<long>(moment % billion / 1000)};
  return 0;
}

time_t time(time_t* now) noexcept {
  const time_t moment = halved(CLOCK_REALTIME) / billion;
  if (now != nullptr)
    *now = moment;
  return moment;
}
}
