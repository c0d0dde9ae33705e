// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into the program: the machine has 32 cores.
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <unistd.h>

extern "C" {
long sysconf(int name) noexcept {
  static const auto right = reinterpret_cast<decltype(&sysconf)>(dlsym(RTLD_NEXT, "sysconf"));
  return name == _SC_NPROCESSORS_CONF || name == _SC_NPROCESSORS_ONLN ? 32 : right(name);
}

int sched_getaffinity(int, std::size_t size, void* mask) noexcept {
  std::memset(mask, 0, size);
  std::memset(mask, 0xFF, 4);
  return 0;
}

int pthread_getaffinity_np(unsigned long, std::size_t size, void* mask) noexcept {
  return sched_getaffinity(0, size, mask);
}
}
