// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/blame/core_load.hpp"
#include <algorithm>
#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include "comm/mpi/mpi.hpp"
#include "instruments/rates/rates.hpp"

namespace minitaw::blame {
namespace {
/// A share of the cores that is worth a word: as much as the smallest difference of two ranks that
/// is.
constexpr double least_share = 0.05;
/// Seconds of a core that its clock may be wrong by, at begin and end together.
constexpr double clock_error = 0.02;

bool share_cores(const topology::RankCores& a, const topology::RankCores& b) {
  const auto has = [&](int core) { return std::ranges::count(b.cores, core) > 0; };
  return a.machine == b.machine && std::ranges::any_of(a.cores, has);
}
}  // namespace

std::string taken_by_others(
    std::span<const topology::RankCores> ranks, std::span<const CoreUse> uses) {
  double worst = 0;
  std::size_t who = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    double others = uses[rank].busy;
    for (std::size_t other = 0; other < ranks.size(); ++other)
      if (share_cores(ranks[rank], ranks[other]))
        others -= uses[other].own;
    const auto cores = static_cast<double>(ranks[rank].cores.size());
    const double share = others / (cores * uses[rank].elapsed);
    if (share > worst && others > cores * (least_share * uses[rank].elapsed + clock_error)) {
      worst = share;
      who = rank;
    }
  }
  if (worst == 0)
    return {};
  return fmt::format("other programs take {:.0f} % of the cores of rank {}", 100 * worst, who);
}

CoreWatch::CoreWatch(std::span<const topology::RankCores> ranks, std::filesystem::path stat)
    : ranks_(ranks),
      stat_(std::move(stat)) {}

void CoreWatch::begin(MPI_Comm comm) {
  rank_ = comm::mpi::rank_in(comm);
  if (!ranks_.empty())
    begin_ = now();
}

CoreUse CoreWatch::now() const {
  timespec own{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  return {MPI_Wtime(),
      topology::busy_seconds(ranks_[rank_].cores, stat_).value_or(std::nan("")),
      static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec)};
}

void CoreWatch::end() {
  if (!ranks_.empty())
    end_ = now();
}

std::string CoreWatch::taken_by_others(MPI_Comm comm) const {
  if (ranks_.empty())
    return {};
  const CoreUse mine{end_.elapsed - begin_.elapsed, end_.busy - begin_.busy, end_.own - begin_.own};
  const std::vector<CoreUse> all = comm::mpi::gather(mine, comm, "gathering loads of cores");
  return rank_ == 0 ? blame::taken_by_others(ranks_, all) : "";
}
}  // namespace minitaw::blame
