// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/instrument.hpp"
#include "instruments/energy/meter.hpp"
#include "record/extension.hpp"

namespace minitaw::energy {
/// Reads a rank's meter before, between and after the timed steps of one repetition, never while a
/// step is timed. Ranks of a node that read the same counters have equal parts.
class StepMeter final : public harness::CaseListener {
public:
  /// `nodes`: of the job, whose first ranks the case has.
  StepMeter(Meter& meter, const topology::Groups& nodes) : meter_(meter), nodes_(nodes) {}

  void before_step(int step) override;
  void after_step(int step) override;
  void after_case(const harness::RunningCase& running, CaseResult& result) override;
  /// Adds the energy of all ranks and its source to the result of rank 0. Collective.
  void collect(MPI_Comm comm, CaseResult& result) const;

private:
  Meter& meter_;
  const topology::Groups& nodes_;
  double before_ = 0, used_ = 0;  ///< J
};

/// Reads the energy of the devices or nodes of a case.
class Energy final : public harness::Instrument {
public:
  Energy(Meter meter, topology::Groups nodes)
      : meter_(std::move(meter)),
        nodes_(std::move(nodes)) {}

  [[nodiscard]] std::unique_ptr<harness::CaseListener> listen(
      const harness::RunningCase& running) override;

private:
  Meter meter_;
  topology::Groups nodes_;
};

/// Adds up energy over repetitions.
[[nodiscard]] record::Extension extension();
}  // namespace minitaw::energy
