// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "verb.hpp"

namespace minitaw::app {
void add_screen(CLI::App& app, Invocation& invocation);
/// In minitaw-predict, of builds with SimGrid.
void add_predict(CLI::App& app, Invocation& invocation);

inline constexpr const char* predict_purpose =
    "what a step costs on a machine that is described in a file; needs no MPI job and no device";
}  // namespace minitaw::app
