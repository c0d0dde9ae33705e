// SPDX-License-Identifier: BSD-3-Clause
// The mini-app alone: CMake's -DMINITAW_INSTRUMENTS=OFF.
#include "instruments.hpp"

namespace minitaw::app {
void add_instruments(CLI::App& /*app*/, const Invocation& /*invocation*/, Verbs& /*verbs*/) {}

record::Remarks remarks() {
  return {};
}

harness::Instruments make_instruments(const JobView& /*job*/) {
  return {};
}
}  // namespace minitaw::app
