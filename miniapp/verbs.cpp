// SPDX-License-Identifier: BSD-3-Clause
#include "instruments.hpp"

namespace minitaw::app {
Verbs make_verbs(CLI::App& app, const Invocation& invocation) {
  Verbs verbs;
  verbs.push_back(make_run(app));
  verbs.push_back(make_verify(app));
  verbs.push_back(make_plan(app));
  verbs.push_back(make_show(app));
  verbs.push_back(make_topo(app));
  verbs.push_back(make_help(app));
  add_instruments(app, invocation, verbs);
  return verbs;
}
}  // namespace minitaw::app
