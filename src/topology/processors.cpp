// SPDX-License-Identifier: BSD-3-Clause
#include "topology/processors.hpp"
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace minitaw::topology {
namespace {
struct Mask {
  cpu_set_t set;
  bool known;
};

Mask at_begin;

/// Without the C library, which may not be ready, and sanitizers, which are not.
__attribute__((no_sanitize("address", "thread", "undefined"))) void read(Mask& mask) {
  mask.known = syscall(SYS_sched_getaffinity, 0, sizeof mask.set, &mask.set) > 0;
}

__attribute__((no_sanitize("address", "thread", "undefined"))) void read_at_begin(
    int /*count*/, char** /*arguments*/, char** /*environment*/) {
  read(at_begin);
}

/// Called before the constructors of all libraries; OpenMP's binds threads there.
[[gnu::used, gnu::section(".preinit_array")]] void (*first)(int, char**, char**) = read_at_begin;

std::vector<int> numbers_of(const Mask& mask) {
  std::vector<int> numbers;
  for (int processor = 0; processor < CPU_SETSIZE && mask.known; ++processor)
    if (CPU_ISSET(processor, &mask.set))
      numbers.push_back(processor);
  return numbers;
}
}  // namespace

std::vector<int> allowed_processors() {
  return at_begin.known ? numbers_of(at_begin) : processors_of_thread();
}

std::vector<int> processors_of_thread() {
  Mask mask{};
  read(mask);
  return numbers_of(mask);
}
}  // namespace minitaw::topology
