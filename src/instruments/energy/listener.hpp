// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/instrument.hpp"
#include "instruments/energy/meter.hpp"

namespace minitaw::energy {
/// Reads a meter before, between and after the timed steps of one repetition, never while a step is
/// timed, so that the time of a reading (Meter::name()) lies between two steps. The meter of a node
/// is shared by all ranks of the case there: the first of them reads, and each has an equal part of
/// energy and power.
class StepMeter {
public:
  /// `nodes`: of the job, whose first ranks the case has; none: each rank has a meter of its own.
  explicit StepMeter(Meter& meter, const topology::Groups* nodes = nullptr)
      : meter_(meter),
        nodes_(nodes) {}

  void begin() { before_ = meter_.energy(); }  ///< before the first timed step

  void sample() { samples_.push_back(meter_.read()); }  ///< after each timed step

  void end() { used_ = meter_.energy() - before_; }  ///< after the last one

  /// Returns the readings of all ranks on rank 0; none, and why, if any meter has failed.
  /// Collective.
  [[nodiscard]] Readings collect(MPI_Comm comm);

private:
  void share_in_node(MPI_Comm comm, std::string& fault);

  Meter& meter_;
  const topology::Groups* nodes_;
  std::vector<DeviceSample> samples_;
  double before_ = 0, used_ = 0;  ///< J
};

/// Reads energy, power, clocks and temperature of the devices and nodes of a case.
class Energy final : public harness::Instrument {
public:
  /// The meters of this rank. `nodes`: of the job.
  Energy(std::shared_ptr<Meter> device, std::shared_ptr<Meter> node, topology::Groups nodes)
      : device_(std::move(device)),
        node_(std::move(node)),
        nodes_(std::move(nodes)) {}

  [[nodiscard]] std::unique_ptr<harness::CaseListener> listen(
      const harness::RunningCase& running) override;

private:
  std::shared_ptr<Meter> device_, node_;
  topology::Groups nodes_;
};
}  // namespace minitaw::energy
