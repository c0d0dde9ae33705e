#include "engine/step_meter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

#include "comm/mpi/size.hpp"
#include "comm/mpi/texts.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;
using comm::mpi::size_of;
using record::DeviceSample;

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view unavailable = "unavailable: ";

static_assert(std::is_trivially_copyable_v<DeviceSample>, "samples travel as bytes");

/// Of the lowest rank that has a fault, on all ranks; empty if none has. Says which rank, unless all have
/// one.
std::string first_fault(const std::string& fault, MPI_Comm comm) {
  const std::vector<std::string> faults = comm::mpi::gather_texts(fault, comm);
  const auto first = std::ranges::find_if_not(faults, &std::string::empty);
  if (first == faults.end()) return {};
  const bool all = std::ranges::none_of(faults, &std::string::empty);
  return all ? *first : fmt::format("rank {}: {}", first - faults.begin(), *first);
}

}  // namespace

StepMeter::StepMeter(meters::Meter* meter)
    : meter_(meter), fault_(meter == nullptr ? "no NVIDIA device" : meter->fault()), before_(none),
      after_(none) {
  if (!fault_.empty()) meter_ = nullptr;
}

void StepMeter::begin() {
  if (meter_ != nullptr) before_ = meter_->energy();
}

void StepMeter::sample() {
  if (meter_ != nullptr) samples_.push_back(meter_->read());
}

void StepMeter::end() {
  if (meter_ == nullptr) return;
  after_ = meter_->energy();
  fault_ = meter_->fault();
}

void StepMeter::collect_samples(MPI_Comm comm, record::CaseResult& result) const {
  for (const DeviceSample& mine : samples_) {
    std::vector<DeviceSample> all(static_cast<std::size_t>(size_of(comm)));
    check(MPI_Gather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, 0, comm),
          "gathering device samples");
    result.device_samples.push_back(std::move(all));
  }
}

void StepMeter::collect_energy(MPI_Comm comm, record::CaseResult& result) const {
  // A counter that stands still, or was set back, has counted nothing.
  const double mine = after_ > before_ ? after_ - before_ : none;
  std::vector<double> all(static_cast<std::size_t>(size_of(comm)));
  check(MPI_Gather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, 0, comm), "gathering energies");
  int counted = std::isnan(before_) ? 0 : 1;
  check(MPI_Allreduce(MPI_IN_PLACE, &counted, 1, MPI_INT, MPI_MAX, comm), "agreeing on meters");
  if (counted != 0) result.energy.push_back(std::move(all));
}

void StepMeter::collect(MPI_Comm comm, record::CaseResult& result) const {
  const std::string fault = first_fault(fault_, comm);
  if (fault.empty()) {
    collect_samples(comm, result);
    collect_energy(comm, result);
    if (!result.counters.starts_with(unavailable)) result.counters = meter_->name();
  } else if (!result.counters.starts_with(unavailable)) {
    result.counters = fmt::format("{}{}", unavailable, fault);
  }
  if (!result.counters.starts_with(unavailable)) return;
  result.device_samples.clear();
  result.energy.clear();
}

}  // namespace minitaw::engine
