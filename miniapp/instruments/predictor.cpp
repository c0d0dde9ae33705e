// SPDX-License-Identifier: BSD-3-Clause
// The verbs of minitaw-predict, the program with SimGrid.
#include "instruments/verbs.hpp"

namespace minitaw::app {
void add_verbs(CLI::App& app, Invocation& invocation) {
  add_predict(app, invocation);
}
}  // namespace minitaw::app
