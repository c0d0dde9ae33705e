#include "limits.hpp"

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <optional>
#include <regex>
#include <string_view>

#include "base/error.hpp"
#include "record/recorder.hpp"

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
      number == SIGTERM  ? "minitaw: SIGTERM: the run ends after this step; a second SIGTERM ends it now\n"
      : number == SIGINT ? "minitaw: SIGINT: the run ends after this step; a second SIGINT ends it now\n"
                         : "minitaw: SIGUSR1: the run ends after this step; a second SIGUSR1 ends it now\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody reads it
}

/// The handler: calls only what POSIX calls safe there.
void note(int number) {
  const int error = errno;
  if (noted == 0 && silent == 0) announce(number);
  noted = number;
  if (number == SIGTERM && over == 0) {
    if (first_second == 0) first_second = now_in_seconds();
    // A batch system may send it twice at once: to the launcher, which passes it on, and to the ranks.
    if (now_in_seconds() - first_second > 1) {
      (void)std::signal(number, SIG_DFL);
      (void)raise(number);
    }
  }
  errno = error;
}

}  // namespace

void note_signals() {
  struct sigaction action{};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    action.sa_flags = static_cast<int>(number == SIGTERM ? SA_RESTART : SA_RESTART | SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
}

void silence_signals() { silent = 1; }
void outlast_signals() { over = 1; }
int noted_signal() { return noted; }

std::string name_of_signal(int number) { return fmt::format("SIG{}", sigabbrev_np(number)); }

namespace {

constexpr double longest_ending = 30;

double number(const std::ssub_match& part) { return part.matched ? std::stod(part.str()) : 0; }

/// Seconds from now to the moment that Slurm names; nothing if it names none.
std::optional<double> slurm_moment(const char* variable) {
  const char* const moment = std::getenv(variable);
  if (moment == nullptr || std::atoll(moment) <= 0) return std::nullopt;
  return std::difftime(static_cast<std::time_t>(std::atoll(moment)), std::time(nullptr));
}

/// Seconds to the end of the Slurm job, a little where it is over; 0 if it is not known.
double left_in_slurm() {
  const auto end = slurm_moment("SLURM_JOB_END_TIME");
  return end ? std::max(*end, 1.0) : 0;
}

}  // namespace

double parse_duration(const std::string& text) {
  static const std::regex with_unit("([0-9]{1,9})([smh])");
  static const std::regex with_colons("(?:(?:([0-9]{1,4})-)?([0-9]{1,5}):)?([0-9]{1,5}):([0-9]{1,5})");
  std::smatch part;
  double seconds = 0;
  if (std::regex_match(text, part, with_unit))
    seconds = number(part[1]) * (part[2] == "h" ? 3600 : part[2] == "m" ? 60 : 1);
  else if (std::regex_match(text, part, with_colons))
    seconds = ((number(part[1]) * 24 + number(part[2])) * 60 + number(part[3])) * 60 + number(part[4]);
  if (!(seconds > 0))
    throw InputError(
        fmt::format("--time-limit: \"{}\" is no length of time; write for example 45m or 1:30:00", text));
  return seconds;
}

TimeLimit::TimeLimit(const std::string& text)
    : length_(text.empty() ? left_in_slurm() : parse_duration(text)),
      whole_(!text.empty() || -slurm_moment("SLURM_JOB_START_TIME").value_or(0) < length_),
      name_(fmt::format("{} of {}", text.empty() ? "the Slurm job's time limit" : "the time limit",
                        record::clock_text(length_))) {}

double TimeLimit::left() const {
  if (!exists()) return std::numeric_limits<double>::infinity();
  const std::chrono::duration<double> passed = Clock::now() - start_;
  return length_ - std::min(longest_ending, length_ / 10) - passed.count();
}

}  // namespace minitaw::app
