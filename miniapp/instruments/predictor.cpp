// SPDX-License-Identifier: BSD-3-Clause
// The verbs of minitaw-predict, the program with SimGrid.
#include "instruments/verbs.hpp"

namespace minitaw::app {
Verbs make_verbs(CLI::App& app, const Invocation& /*invocation*/) {
  Verbs verbs;
  verbs.push_back(make_predict(app));
  return verbs;
}
}  // namespace minitaw::app
