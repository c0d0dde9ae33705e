#pragma once

#include <mpi.h>

#include <vector>

#include "meters/meter.hpp"

namespace minitaw::engine {

/// Asks the meter of this rank's device before, between and after the timed steps of one repetition, never
/// while a step is timed. What a reading costs (Meter::name() says) comes to lie between two steps.
class StepMeter {
public:
  /// Reads nothing where there is no meter, or its fault is known.
  explicit StepMeter(meters::Meter* meter);

  void begin();   ///< before the first timed step
  void sample();  ///< after each timed step
  void end();     ///< after the last one's sample

  /// Adds this repetition to the result on rank 0: a row of device_samples for each step and one of energy,
  /// or, if the meter of any rank has failed, none at all for the whole case, and why. Collective.
  void collect(MPI_Comm comm, record::CaseResult& result) const;

private:
  void collect_samples(MPI_Comm comm, record::CaseResult& result) const;
  void collect_energy(MPI_Comm comm, record::CaseResult& result) const;

  meters::Meter* meter_;
  std::string fault_;
  std::vector<record::DeviceSample> samples_;
  double before_, after_;  ///< J
};

}  // namespace minitaw::engine
