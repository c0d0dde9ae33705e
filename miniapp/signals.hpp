// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Signals of users and batch systems that end a run: SIGTERM, SIGINT, SIGHUP (unless it is ignored,
// as by nohup), SIGUSR1, SIGUSR2, SIGXCPU.
namespace minitaw::app {
/// From now on the first of them makes the run end after its step, and another one ends it at once.
/// A closed standard output ends nothing.
void catch_signals();
/// Says which rank this is. Rank 0 prints what the first signal does, also if it has come before.
void catch_signals_of(int rank);
/// Rank 0: such a signal has come to another rank.
void pass_on_signal(int rank, int number);
/// Ignores further signals while MPI ends: when the first rank has ended, srun sends SIGTERM to the
/// others.
void ignore_signals();
/// The last signal caught; 0: none.
int caught_signal();
}  // namespace minitaw::app
