// SPDX-License-Identifier: BSD-3-Clause
#include "signals.hpp"
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <string.h>
#include <string_view>
#include <unistd.h>

namespace minitaw::app {
namespace {
volatile std::sig_atomic_t noted = 0, over = 0;
volatile std::time_t first_second = 0;  ///< when a signal came to this rank first
std::atomic<int> own_rank = -1;         ///< -1: MPI has not started
std::atomic<bool> told = false;

/// Prints one line, once. A handler calls this: only what POSIX calls safe there, no memory.
void tell(int rank, int number) {
  if (told.exchange(true))
    return;
  std::array<char, 160> line{};
  char* end = line.data();
  const auto add = [&](std::string_view text) { end = std::ranges::copy(text, end).out; };
  add("minitaw: SIG");
  add(sigabbrev_np(number));
  add(" came to rank ");
  end = std::to_chars(end, line.data() + line.size(), rank).ptr;
  add(": the run ends after this step; a second signal ends it now\n");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), end - line.data());
}

void note(int number) {
  const int error = errno;
  const std::time_t now = std::time(nullptr);
  noted = number;
  if (first_second == 0)
    first_second = now;
  if (own_rank == 0)
    tell(0, number);
  // A batch system may send it twice at once: to the launcher, which passes it on, and to the
  // ranks. The kernel sends SIGXCPU every second.
  if (over == 0 && number != SIGXCPU && now - first_second > 1) {
    (void)std::signal(number, SIG_DFL);
    (void)raise(number);
  }
  errno = error;
}
}  // namespace

void catch_signals() {
  struct sigaction action{}, before{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP}) {
    sigaction(number, &action, &before);
    if (number == SIGHUP && before.sa_handler == SIG_IGN)
      sigaction(number, &before, nullptr);
  }
  (void)std::signal(SIGPIPE, SIG_IGN);
}

void catch_signals_of(int rank) {
  own_rank = rank;
  if (rank == 0 && noted != 0)
    tell(0, noted);
}

void pass_on_signal(int rank, int number) {
  if (noted == 0)
    noted = number;
  tell(rank, number);
}

void ignore_signals() {
  over = 1;
}

int caught_signal() {
  return noted;
}
}  // namespace minitaw::app
