// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/energy/listener.hpp"
#include <cmath>
#include "comm/mpi/mpi.hpp"
#include "harness/collect.hpp"

namespace minitaw::energy {
namespace {
using comm::mpi::check, comm::mpi::rank_in, comm::mpi::size_of;
constexpr double none = std::numeric_limits<double>::quiet_NaN();
}  // namespace

void StepMeter::before_step(int step) {
  if (step == 0)
    before_ = meter_.energy();
}

void StepMeter::after_step(int step) {
  samples_.push_back(meter_.read());
  if (step + 1 == steps_)
    used_ = meter_.energy() - before_;
}

void StepMeter::after_case(const harness::ExecutedCase& executed, CaseResult& result) {
  add(collect(executed.running.comm), nodes_ != nullptr, result);
}

void StepMeter::share_in_node(MPI_Comm comm, std::string& fault) {
  comm::mpi::OwnComm node;
  check(MPI_Comm_split(comm, nodes_->group_of(rank_in(comm)), 0, &node.comm), "MPI_Comm_split");
  fault = comm::mpi::gather_texts(fault, node.comm).front();
  const auto bytes = static_cast<int>(samples_.size() * sizeof(DeviceSample));
  check(MPI_Bcast(samples_.data(), bytes, MPI_BYTE, 0, node.comm), "sharing samples of a node");
  check(MPI_Bcast(&before_, 1, MPI_DOUBLE, 0, node.comm), "sharing the energy of a node");
  check(MPI_Bcast(&used_, 1, MPI_DOUBLE, 0, node.comm), "sharing the energy of a node");
  const double part = 1.0 / size_of(node.comm);
  used_ *= part;
  for (DeviceSample& mine : samples_)
    mine.power_w *= part;
}

Readings StepMeter::collect(MPI_Comm comm) {
  std::string fault = meter_.fault();
  if (nodes_ != nullptr)
    share_in_node(comm, fault);
  fault = harness::first_fault(fault, comm);
  if (!fault.empty())
    return {.source = "unavailable: " + fault};

  Readings readings{.source = meter_.name()};
  for (const DeviceSample& mine : samples_)
    readings.samples.push_back(comm::mpi::gather(mine, comm, "gathering samples of meters"));
  // A counter that stands still, or was set back, has counted nothing.
  readings.energy =
      comm::mpi::gather(used_ > 0 ? used_ : none, comm, "gathering energies of meters");
  int counted = std::isnan(before_) ? 0 : 1;
  check(MPI_Allreduce(MPI_IN_PLACE, &counted, 1, MPI_INT, MPI_MAX, comm), "agreeing on meters");
  if (counted == 0)
    readings.energy.clear();
  return readings;
}

std::unique_ptr<harness::CaseListener> Energy::listen(const harness::RunningCase& running) {
  return std::make_unique<StepMeter>(*meter_, running.settings.steps, nodes_ ? &*nodes_ : nullptr);
}
}  // namespace minitaw::energy
