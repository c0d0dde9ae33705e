// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "verb.hpp"

namespace minitaw::app {
std::unique_ptr<Verb> make_screen(CLI::App& app);
/// In minitaw-predict, of builds with SimGrid.
std::unique_ptr<Verb> make_predict(CLI::App& app);

inline constexpr const char* predict_purpose =
    "what a step costs on a machine that is described in a file; needs no MPI job and no device";
}  // namespace minitaw::app
