// SPDX-License-Identifier: BSD-3-Clause
#include "screen_known.hpp"
#include <cmath>
#include "base/error.hpp"
#include "instruments/predict/machine.hpp"
#include "instruments/rates/rates.hpp"
#include "record/row.hpp"

namespace minitaw::app {
namespace {
using rates::HardwareRate;

// Shares that a healthy part reaches: docs/screen.md, "What is known without peers".

/// Clocks change and registers differ, so that only a quarter of a processor's peak is certain.
constexpr double least_of_processor = 0.25;
constexpr double least_of_device = 0.5, least_of_port = 0.5, least_of_shaped_link = 0.8;
/// A fifth may lack of a machine file's rates; latencies may be twice as long.
constexpr double least_of_machine = 0.8, least_of_latency = 0.5;

/// The value of each rank, with the source of rank 0.
screen::Known gathered(const std::optional<HardwareRate>& mine, double least, int ranks) {
  const double value = mine ? mine->value : std::nan("");
  std::vector<double> all(ranks);
  comm::mpi::check(MPI_Allgather(&value, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, MPI_COMM_WORLD),
      "sharing what is known");
  return {std::move(all), least, mine ? mine->source : ""};
}

/// "rate=100mbit" of scripts/cluster, as B/s.
std::optional<HardwareRate> shaped_rate() {
  for (const std::string& setting : record::shaped_links())
    if (setting.starts_with("rate="))
      return HardwareRate{std::atof(setting.c_str() + 5) * 1e6 / 8, "shaped links"};
  return {};
}

/// Of the matrix products of this rank.
std::optional<HardwareRate> product_peak(const topology::RankPlace& place, model::Dtype dtype) {
  if (!kernels::on_host)
    return HardwareRate{record::datasheet_peak(place.unit, dtype), "datasheet"};
  if (dtype != model::Dtype::fp32)
    return {};
  std::optional<HardwareRate> peak = rates::core_peak();
  if (peak) {
    peak->value *= place.threads;
    peak->source += fmt::format(", {}", counted(place.threads, "thread"));
  }
  return peak;
}
}  // namespace

std::vector<Expected> expected_by_hardware(const MpiJob& mpi, model::Dtype dtype) {
  const topology::RankPlace& here = mpi.ranks[mpi.environment.rank()];
  const bool shaped = !record::shaped_links().empty();
  return {{"matrix product",
              gathered(product_peak(here, dtype),
                  kernels::on_host ? least_of_processor : least_of_device,
                  mpi.environment.ranks())},
      {"rate between nodes",
          gathered(shaped ? shaped_rate() : rates::link_rate(here.site.adapters),
              shaped ? least_of_shaped_link : least_of_port,
              mpi.environment.ranks())}};
}

std::vector<Expected> expected_by_machine(
    const std::string& path, const model::Shape& s, int ranks) {
  const predict::Machine machine = predict::read_machine(path);
  if (!machine.alike)
    throw InputError(
        path + ": a machine for --expect has no exceptions: it says what all must reach");
  std::vector<Expected> all;
  const auto add = [&](const char* name, double value, double least = least_of_machine) {
    if (value > 0)
      all.push_back({name, {std::vector<double>(ranks, value), least, "machine file"}});
  };
  const double speed = machine.own.front().speed;
  if (const auto rates = machine.device.speeds.find(s.dtype);
      rates != machine.device.speeds.end()) {
    const auto tokens = static_cast<double>(s.tokens());
    const double product = 4.0 * tokens * static_cast<double>(s.hidden * s.ffn.front());
    const double square = 2.0 * tokens * static_cast<double>(s.seq * s.heads * s.head_dim());
    add("matrix product", speed * rates->second.products.at(product));
    add("attention", speed * rates->second.attention.at(square));
  }
  add("triad", speed * machine.device.memory_rate);
  add("rate between nodes", machine.rate);
  add("latency between nodes", machine.latency, least_of_latency);
  return all;
}
}  // namespace minitaw::app
