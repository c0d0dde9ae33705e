#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "schedule/account.hpp"
#include "schedule/program.hpp"

namespace minitaw::comm::mpi {

/// Staging memory by lane, empty for lanes without reductions.
using Staging = std::array<std::span<std::byte>, schedule::lanes>;

/// Shares the staging memory of a rank: each lane with a reduce, reduce_scatter or all_reduce gets 2
/// chunk_bytes, in the order of the lanes, as schedule::Footprint counts. Throws LogicError if there is not
/// enough.
[[nodiscard]] Staging share_staging(const schedule::RankProgram& rank, std::span<std::byte> memory);

}  // namespace minitaw::comm::mpi
