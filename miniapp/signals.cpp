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
volatile std::time_t first_second = 0;  ///< when a signal came first

/// The handler: calls only what POSIX calls safe there.
void note(int number) {
  constexpr std::string_view text =
      "minitaw: the run ends after this step; a second signal ends it now\n";
  const int error = errno;
  if (noted == 0) {
    first_second = std::time(nullptr);
    [[maybe_unused]] const ssize_t told =
        silent == 0 ? write(STDERR_FILENO, text.data(), text.size()) : 0;
  }
  noted = number;
  // A batch system may send it twice at once: to the launcher, which passes it on, and to the
  // ranks.
  if (over == 0 && std::time(nullptr) - first_second > 1) {
    (void)std::signal(number, SIG_DFL);
    (void)raise(number);
  }
  errno = error;
}
}  // namespace

void catch_signals() {
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1})
    sigaction(number, &action, nullptr);
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
