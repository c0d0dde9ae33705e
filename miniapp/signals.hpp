#pragma once

#include <string>

namespace minitaw::app {

/// From now on SIGTERM, SIGINT and SIGUSR1 are noted instead of ending the process; a second SIGINT or
/// SIGUSR1 ends it.
void note_signals();

/// The last one noted, 0: none.
[[nodiscard]] int noted_signal();

/// "SIGTERM"
[[nodiscard]] std::string name_of_signal(int number);

}  // namespace minitaw::app
