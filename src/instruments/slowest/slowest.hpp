// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/instrument.hpp"
#include "instruments/rates/rates.hpp"
#include "record/verdict.hpp"

/// Which rank computes slowest (docs/results.md).
namespace minitaw::slowest {
struct Slowest {
  std::int64_t rank = -1;              ///< -1: not known
  double ratio = CaseResult::unknown;  ///< its time to the median of all ranks
};

/// Of the time that each rank takes for the same work.
Slowest slowest_of(const std::vector<double>& times);
/// Returns whether programs that are no rank took a share of a rank's cores that may slow it.
/// `uses`: of the first ranks, those of a case.
bool others_ran(std::span<const topology::RankPlace> ranks, std::span<const rates::CoreUse> uses);
/// A closing line on a rank that is slow in all cases.
record::Remark remark();

/// Compares the ranks of each case of a job whose ranks share neither cores nor devices.
class Comparison final : public harness::Instrument {
public:
  /// `cores`: of this rank. `places`, on rank 0: of each rank of the job; none: they compute on
  /// devices. `stat` says how busy cores are.
  Comparison(std::vector<int> cores,
      std::vector<topology::RankPlace> places,
      std::filesystem::path stat = "/proc/stat")
      : cores_(std::move(cores)),
        places_(std::move(places)),
        stat_(std::move(stat)) {}

  void before_step(int step) override;
  void after_step(int step) override;
  void after_case(const harness::RunningCase& running, CaseResult& result) override;

private:
  std::vector<int> cores_;
  std::vector<topology::RankPlace> places_;
  std::filesystem::path stat_;
  rates::CoreUse begin_, end_;
};
}  // namespace minitaw::slowest
