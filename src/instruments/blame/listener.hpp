// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include "harness/instrument.hpp"
#include "instruments/rates/rates.hpp"

namespace minitaw::blame {
/// Names the rank of whose cores other programs took most: "other programs take 62 %
/// of the cores of rank 3". Empty: none had less than 95 %, but for what a clock of hundredths of a
/// second cannot tell. `ranks`, `uses`: of each rank.
[[nodiscard]] std::string taken_by_others(
    std::span<const topology::RankPlace> ranks, std::span<const rates::CoreUse> uses);

/// Looks for a rank, node, adapter or link that stands out in the timed steps of a case.
class Finder final : public harness::Instrument {
public:
  struct Job {
    topology::Groups nodes;
    /// Of each rank. Times of ranks that share cores say nothing of a rank; none: they compute on
    /// devices.
    std::vector<topology::RankPlace> places{};
    bool shared_devices = false;
    std::filesystem::path stat = "/proc/stat";  ///< says how busy cores are
  };

  explicit Finder(Job job) : job_(std::move(job)) {}

  [[nodiscard]] std::unique_ptr<harness::CaseListener> listen(
      const harness::RunningCase& running) override;

private:
  Job job_;
};
}  // namespace minitaw::blame
