// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <filesystem>
#include "harness/instrument.hpp"
#include "topology/placement.hpp"

namespace minitaw::blame {
/// Looks for a rank, node, adapter or link that stands out in the timed steps of a case.
class Finder final : public harness::Instrument {
public:
  struct Job {
    topology::Groups nodes;
    /// Of each rank. Times of ranks that share cores say nothing of a rank; none: they compute on
    /// devices.
    std::vector<topology::RankPlace> ranks{};
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
