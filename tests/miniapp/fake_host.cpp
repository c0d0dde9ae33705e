// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into the program: the machine has a name that occurs nowhere by chance.
#include <cstring>
#include <sys/utsname.h>
#include <unistd.h>

extern "C" {

int gethostname(char* name, std::size_t size) noexcept {
  std::strncpy(name, "leak017.cluster.example", size);
  return 0;
}

int uname(utsname* system) noexcept {
  *system = {};
  std::strcpy(system->sysname, "Linux");
  std::strcpy(system->nodename, "leak017.cluster.example");
  std::strcpy(system->release, "6.1-leak017");  // somebody has built a kernel for it
  std::strcpy(system->machine, "x86_64");
  return 0;
}
}
