// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/instrument.hpp"
#include "instruments/energy/meter.hpp"

namespace minitaw::energy {
/// Reads a meter before, between and after the timed steps of one repetition, never while a step is
/// timed, so that the time of a reading (Meter::name()) lies between two steps. The meter of a node
/// is shared by all ranks of the case there: the first of them reads, and each has an equal part of
/// energy and power.
class StepMeter final : public harness::CaseListener {
public:
  /// `steps`: that are timed. `nodes`: of the job, whose first ranks the case has; none: each rank
  /// has a meter of its own.
  StepMeter(Meter& meter, int steps, const topology::Groups* nodes = nullptr)
      : meter_(meter),
        steps_(steps),
        nodes_(nodes) {}

  void before_step(int step) override;
  void after_step(int step) override;
  void after_case(const harness::ExecutedCase& executed, CaseResult& result) override;
  /// Returns the readings of all ranks on rank 0; none, and why, if any meter has failed.
  /// Collective.
  [[nodiscard]] Readings collect(MPI_Comm comm);

private:
  void share_in_node(MPI_Comm comm, std::string& fault);

  Meter& meter_;
  int steps_;
  const topology::Groups* nodes_;
  std::vector<DeviceSample> samples_;
  double before_ = 0, used_ = 0;  ///< J
};

/// Reads energy, power, clocks and temperature of the devices of a case, or energy and power of its
/// nodes.
class Energy final : public harness::Instrument {
public:
  /// The meter of this rank's device; with the `nodes` of the job, of its node.
  explicit Energy(std::shared_ptr<Meter> meter, std::optional<topology::Groups> nodes = {})
      : meter_(std::move(meter)),
        nodes_(std::move(nodes)) {}

  [[nodiscard]] std::unique_ptr<harness::CaseListener> listen(
      const harness::RunningCase& running) override;

private:
  std::shared_ptr<Meter> meter_;
  std::optional<topology::Groups> nodes_;
};
}  // namespace minitaw::energy
