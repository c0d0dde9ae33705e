// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into the program: opens a socket while libraries are loaded, and keeps it.
#include <sys/socket.h>

namespace {
[[gnu::constructor]] void take_a_number() {
  socket(AF_INET, SOCK_STREAM, 0);
}
}  // namespace
