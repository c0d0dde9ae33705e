// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "schedule/registry.hpp"

namespace minitaw::schedule::schedules {
/// The example schedule of docs/extending.md.
[[nodiscard]] Entry lend();
}  // namespace minitaw::schedule::schedules
