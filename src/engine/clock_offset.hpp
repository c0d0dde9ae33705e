#pragma once

#include <mpi.h>

#include <functional>

namespace minitaw::engine {

/// Seconds on some clock of this rank.
using Now = std::function<double()>;

/// What to add to this rank's `now` to get that of rank 0 of `comm`, by messages that go back and forth:
/// wrong by half the time of the fastest of them at most. Collective.
[[nodiscard]] double offset_by_messages(MPI_Comm comm, const Now& now);

/// The same for the host's clock (Clock::started). Ranks of one node share it; only the first rank of each
/// node exchanges messages. Collective.
[[nodiscard]] double clock_offset(MPI_Comm comm);

}  // namespace minitaw::engine
