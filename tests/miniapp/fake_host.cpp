// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into the program: the machine has a name that occurs nowhere by chance, and on the rank
// that FAULTY_RANK names, its matrix products are 1 % too large. On the rank that BROKEN_RANK
// names, MPI_Ibarrier fails when it is called for the BARRIERSth time. With NO_DEVICE it is linked
// into the program instead of what asks for devices: the rank that RANK_WITHOUT_DEVICE names has
// none, and all others have UNKNOWN_DEVICES that only Kokkos knows.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

/// Whether this rank is the one that an environment variable names.
static bool is_rank_of(const char* variable) {
  const char *named = std::getenv(variable), *rank = std::getenv("PMI_RANK");
  if (rank == nullptr)
    rank = std::getenv("PMIX_RANK");
  return named != nullptr && rank != nullptr && std::strcmp(named, rank) == 0;
}

#ifdef NO_DEVICE
#include "base/error.hpp"
#include "topology/devices.hpp"

using Devices = std::vector<minitaw::topology::Device>;
extern "C" Devices __real__ZN7minitaw8topology15visible_devicesEv();

extern "C" Devices __wrap__ZN7minitaw8topology15visible_devicesEv() {
  if (is_rank_of("RANK_WITHOUT_DEVICE"))
    throw minitaw::InputError("counting the devices: there is none");
  Devices devices = __real__ZN7minitaw8topology15visible_devicesEv();
  const char* const unknown = std::getenv("UNKNOWN_DEVICES");
  for (int index = 0; unknown != nullptr && index < std::atoi(unknown); ++index)
    devices.push_back({index, "OpenMP of unknown name", "device " + std::to_string(index)});
  return devices;
}
#else
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

int MPI_Ibarrier(std::intptr_t comm, void* request) {
  static const auto right =
      reinterpret_cast<decltype(&MPI_Ibarrier)>(dlsym(RTLD_NEXT, "MPI_Ibarrier"));
  static int left = is_rank_of("BROKEN_RANK") ? std::atoi(std::getenv("BARRIERS")) : 0;
  constexpr int other_error = 15;
  return --left == 0 ? other_error : right(comm, request);
}

void sgemm_(const char* transa,
    const char* transb,
    const int* m,
    const int* n,
    const int* k,
    const float* alpha,
    const float* a,
    const int* lda,
    const float* b,
    const int* ldb,
    const float* beta,
    float* c,
    const int* ldc) {
  static const auto right = reinterpret_cast<decltype(&sgemm_)>(dlsym(RTLD_NEXT, "sgemm_"));
  static const bool errs = is_rank_of("FAULTY_RANK");
  const float scale = *alpha * (errs ? 1.01F : 1.0F);
  right(transa, transb, m, n, k, &scale, a, lda, b, ldb, beta, c, ldc);
}
}
#endif
