#include "signals.hpp"

#include <fmt/format.h>

#include <csignal>
#include <string.h>

namespace minitaw::app {

namespace {

volatile std::sig_atomic_t noted = 0;

void note(int number) { noted = number; }

}  // namespace

void note_signals() {
  struct sigaction action{};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    // When the first rank has ended, srun sends SIGTERM to those that are about to.
    action.sa_flags = static_cast<int>(number == SIGTERM ? SA_RESTART : SA_RESTART | SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

int noted_signal() { return noted; }

std::string name_of_signal(int number) { return fmt::format("SIG{}", sigabbrev_np(number)); }

}  // namespace minitaw::app
