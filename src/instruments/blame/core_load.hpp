// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include <mpi.h>
#include "instruments/rates/rates.hpp"

namespace minitaw::blame {
/// Returns the ranks whose cores other programs took, the worst of them: "other programs take 62 %
/// of the cores of rank 3". Empty: none had less than 95 %, but for what a clock of hundredths of a
/// second cannot tell. `ranks`, `uses`: of each rank.
[[nodiscard]] std::string taken_by_others(
    std::span<const topology::RankPlace> ranks, std::span<const rates::CoreUse> uses);

/// Watches the cores of this rank while steps are timed.
class CoreWatch {
public:
  /// `stat`: /proc/stat, but in tests.
  CoreWatch(std::span<const topology::RankPlace> ranks, std::filesystem::path stat);
  void begin(MPI_Comm comm);
  void end();
  /// Returns what taken_by_others() says of the time from begin() to end(), on rank 0. Collective.
  [[nodiscard]] std::string taken_by_others(MPI_Comm comm) const;

private:
  std::span<const topology::RankPlace> ranks_;
  std::filesystem::path stat_;
  int rank_ = -1;  ///< of the case
  rates::CoreUse begin_, use_;
};
}  // namespace minitaw::blame
