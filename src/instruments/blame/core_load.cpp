// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/blame/core_load.hpp"
#include <fmt/format.h>
#include "comm/mpi/mpi.hpp"

namespace minitaw::blame {
namespace {
/// A share of the cores that is worth a word: as much as the smallest difference of two ranks that
/// is.
constexpr double least_share = 0.05;
/// Seconds of a core that its clock may be wrong by, at begin and end together.
constexpr double clock_error = 0.02;
}  // namespace

std::string taken_by_others(
    std::span<const topology::RankPlace> ranks, std::span<const rates::CoreUse> uses) {
  double worst = 0;
  int who = 0;
  for (int rank = 0; rank < std::ssize(ranks); ++rank) {
    const double share = rates::share_of_others(ranks, uses, rank);
    if (share > worst && share > least_share + clock_error / uses[rank].elapsed) {
      worst = share;
      who = rank;
    }
  }
  if (worst == 0)
    return {};
  return fmt::format("other programs take {:.0f} % of the cores of rank {}", 100 * worst, who);
}

CoreWatch::CoreWatch(std::span<const topology::RankPlace> ranks, std::filesystem::path stat)
    : ranks_(ranks),
      stat_(std::move(stat)) {}

void CoreWatch::begin(MPI_Comm comm) {
  rank_ = comm::mpi::rank_in(comm);
  if (!ranks_.empty())
    begin_ = rates::core_use(ranks_[rank_].cores, stat_);
}

void CoreWatch::end() {
  if (!ranks_.empty())
    use_ = rates::core_use(ranks_[rank_].cores, stat_) - begin_;
}

std::string CoreWatch::taken_by_others(MPI_Comm comm) const {
  if (ranks_.empty())
    return {};
  const std::vector<rates::CoreUse> all = comm::mpi::gather(use_, comm, "gathering loads of cores");
  return rank_ == 0 ? blame::taken_by_others(ranks_, all) : "";
}
}  // namespace minitaw::blame
