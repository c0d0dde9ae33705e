// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/instrument.hpp"
#include "instruments/energy/meter.hpp"

namespace minitaw::energy {
/// Reads the energy of the devices or nodes of a case: a rank's meter before, between and after the
/// timed steps of one repetition, never while a step is timed. Ranks of a node that read the same
/// counters have equal parts.
class Energy final : public harness::Instrument {
public:
  /// `nodes`: of the job, whose first ranks a case has.
  Energy(Meter meter, topology::Groups nodes)
      : meter_(std::move(meter)),
        nodes_(std::move(nodes)) {}

  void before_step(int step) override;
  void after_step(int step) override;
  void after_case(const harness::RunningCase& running, CaseResult& result) override;
  /// Adds the energy of all ranks and its source to the result of rank 0. Collective.
  void collect(MPI_Comm comm, CaseResult& result) const;

private:
  Meter meter_;
  topology::Groups nodes_;
  double before_ = 0, used_ = 0;  ///< J
};
}  // namespace minitaw::energy
