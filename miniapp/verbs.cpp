// SPDX-License-Identifier: BSD-3-Clause
#include "instruments.hpp"

namespace minitaw::app {
void add_verbs(CLI::App& app, Invocation& invocation) {
  add_run(app, invocation);  // in the order of the overview
  add_verify(app, invocation);
  add_plan(app, invocation);
  add_show(app, invocation);
  add_topo(app, invocation);
  add_help(app, invocation);
  add_instruments(app, invocation);
}
}  // namespace minitaw::app
