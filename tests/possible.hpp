// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/error.hpp"
#include "schedule/registry.hpp"

namespace minitaw::schedule {
/// Whether the registry takes the request.
inline bool possible(const Request& request) {
  try {
    check(request);
  } catch (const InputError&) {
    return false;
  }
  return true;
}
}  // namespace minitaw::schedule
