// SPDX-License-Identifier: BSD-3-Clause
#include "signals.hpp"
#include <cerrno>
#include <csignal>
#include <ctime>
#include <string_view>
#include <unistd.h>

namespace minitaw::app {
namespace {
volatile std::sig_atomic_t noted = 0, silent = 0, over = 0;
volatile std::time_t first_second = 0;  ///< when SIGTERM came first

/// Monotonic, and safe in a signal handler.
std::time_t now_in_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

void announce(int number) {
  const std::string_view text =
      number == SIGTERM
          ? "minitaw: SIGTERM: the run ends after this step; a second SIGTERM ends it now\n"
      : number == SIGINT
          ? "minitaw: SIGINT: the run ends after this step; a second SIGINT ends it now\n"
          : "minitaw: SIGUSR1: the run ends after this step; a second SIGUSR1 ends it now\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0)
    return;  // no one reads it
}

/// The handler: calls only what POSIX calls safe there.
void note(int number) {
  const int error = errno;
  if (noted == 0 && silent == 0)
    announce(number);
  noted = number;
  if (number == SIGTERM && over == 0) {
    if (first_second == 0)
      first_second = now_in_seconds();
    // A batch system may send it twice at once: to the launcher, which passes it on, and to the
    // ranks.
    if (now_in_seconds() - first_second > 1) {
      (void)std::signal(number, SIG_DFL);
      (void)raise(number);
    }
  }
  errno = error;
}
}  // namespace

void catch_signals() {
  struct sigaction action{};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    action.sa_flags = static_cast<int>(number == SIGTERM ? SA_RESTART : SA_RESTART | SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

void catch_signals_silently() {
  silent = 1;
}

void ignore_signals() {
  over = 1;
}

int caught_signal() {
  return noted;
}
}  // namespace minitaw::app
