// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace minitaw::app {
/// From now on the first SIGTERM, SIGINT or SIGUSR1 prints that the run ends after this step;
/// another one ends it.
void catch_signals();
/// Turns the printed message off: another rank prints it.
void catch_signals_silently();
/// Ignores further signals while MPI ends: when the first rank has ended, srun sends SIGTERM to the
/// others.
void ignore_signals();
/// The last signal caught; 0: none.
int caught_signal();
}  // namespace minitaw::app
