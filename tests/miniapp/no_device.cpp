// SPDX-License-Identifier: BSD-3-Clause
// Linked into the program in place of what asks for devices: the rank that RANK_WITHOUT_DEVICE names has
// none.
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "topology/devices.hpp"

using Devices = std::vector<minitaw::topology::Device>;

extern "C" Devices __real__ZN7minitaw8topology15visible_devicesEv();

extern "C" Devices __wrap__ZN7minitaw8topology15visible_devicesEv() {
  const char *without = std::getenv("RANK_WITHOUT_DEVICE"), *rank = std::getenv("PMI_RANK");
  if (rank == nullptr) rank = std::getenv("PMIX_RANK");
  if (without != nullptr && rank != nullptr && std::strcmp(without, rank) == 0)
    throw minitaw::InputError("counting the devices: there is none");
  return __real__ZN7minitaw8topology15visible_devicesEv();
}
