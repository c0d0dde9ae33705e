// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "harness/instrument.hpp"
#include "record/verdict.hpp"
#include "topology/placement.hpp"
#include "verb.hpp"

// The instruments of this build. instruments/list.cpp defines these functions; a build without
// instruments has no_instruments.cpp.
namespace minitaw::app {
/// Adds the verbs of instruments.
void add_instruments(CLI::App& app, const Invocation& invocation, Verbs& verbs);
/// What instruments say at the end of a sweep.
record::Remarks remarks();

/// What instruments know of the job, on one rank.
struct JobView {
  topology::Placement place;                ///< of this rank
  std::vector<topology::RankPlace> places;  ///< on rank 0, of each; none: they compute on devices
  bool crowded = false;                     ///< some ranks have too few cores
  std::string device_uuid;                  ///< of this rank's device; empty: a host
  bool shared_devices = false;              ///< some ranks use the same device
};

/// The instruments that look at every case of the job. Collective over MPI_COMM_WORLD.
harness::Instruments make_instruments(const JobView& job);
}  // namespace minitaw::app
