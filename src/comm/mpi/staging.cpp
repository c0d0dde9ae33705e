#include "comm/mpi/staging.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::comm::mpi {
namespace {

bool reduces(const schedule::Action& action) {
  using enum schedule::Kind;
  return action.kind == reduce || action.kind == reduce_scatter || action.kind == all_reduce;
}

}  // namespace

Staging share_staging(const schedule::RankProgram& rank, std::span<std::byte> memory) {
  constexpr std::size_t share = 2 * schedule::chunk_bytes;
  Staging staging;
  for (int lane = 0; lane < schedule::lanes; ++lane) {
    const auto here = [&](const schedule::Action& a) {
      return static_cast<int>(a.lane) == lane && reduces(a);
    };
    if (std::ranges::none_of(rank.actions, here)) continue;
    if (memory.size() < share)
      throw LogicError(fmt::format("{} bytes of staging memory are left for lane {}, which needs {}",
                                   memory.size(), schedule::name_of(static_cast<schedule::Lane>(lane)),
                                   share));
    staging[lane] = memory.first(share);
    memory = memory.subspan(share);
  }
  return staging;
}

}  // namespace minitaw::comm::mpi
