// SPDX-License-Identifier: BSD-3-Clause
// What must be done before libraries are loaded.
//
// A closed standard stream: a library would take its number, and get what the program prints.
//
// A limited address space (ulimit -v, login nodes): a BLAS takes buffers for every core while it is
// loaded (OpenBLAS 128 MiB each); OpenBLAS tries for ever where they do not fit.
#include <algorithm>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <vector>

// Sanitizers are not ready before the constructors of libraries.
#define NOT_SANITIZED __attribute__((no_sanitize("address", "thread", "undefined")))

namespace minitaw::app {
namespace {
constexpr char one_thread[] = "OMP_NUM_THREADS=1";
constexpr timeval processor_time{2, 0};

/// To write to one that was closed is an error still. System calls: sanitizers have functions of
/// their own in the place of those of libc.
NOT_SANITIZED void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (syscall(SYS_fcntl, stream, F_GETFD) == -1)
      syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY);
}

NOT_SANITIZED bool is_address_space_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

void refuse_limit(int) {
  constexpr std::string_view sentence =
      "minitaw: the address space that ulimit -v allows is too small for the threads of the BLAS "
      "library: raise the limit, or set OMP_NUM_THREADS to fewer threads\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, sentence.data(), sentence.size());
  _exit(2);
}

/// Verbs that compute nothing begin again with one thread.
void begin_again(int argc, char** argv, char** environment) {
  constexpr std::string_view computing[] = {"run", "verify", "screen", "topo"};
  if (argc > 1 && std::ranges::find(computing, argv[1]) != std::end(computing))
    return;
  std::vector<char*> variables;
  for (; *environment != nullptr; ++environment) {
    if (std::strcmp(*environment, one_thread) == 0)
      return;
    if (std::strncmp(*environment, one_thread, sizeof one_thread - 2) != 0)
      variables.push_back(*environment);
  }
  variables.insert(variables.end(), {const_cast<char*>(one_thread), nullptr});
  execve("/proc/self/exe", argv, variables.data());
}

/// Before the constructors of all libraries.
NOT_SANITIZED void before_libraries(int argc, char** argv, char** environment) {
  occupy_closed_streams();
  if (!is_address_space_limited())
    return;
  begin_again(argc, argv, environment);
  signal(SIGPROF, refuse_limit);
  const itimerval once{{}, processor_time};
  setitimer(ITIMER_PROF, &once, nullptr);
}

[[maybe_unused, gnu::section(".preinit_array"), gnu::used]] void (*called_first)(
    int, char**, char**) = before_libraries;

/// After them.
[[gnu::constructor]] void libraries_are_loaded() {
  if (!is_address_space_limited())
    return;
  const itimerval never{};
  setitimer(ITIMER_PROF, &never, nullptr);
  signal(SIGPROF, SIG_DFL);
}
}  // namespace
}  // namespace minitaw::app
