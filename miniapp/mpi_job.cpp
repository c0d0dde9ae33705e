#include "mpi_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "cli/cli11.hpp"
#include "comm/mpi/check.hpp"
#include "comm/mpi/texts.hpp"
#include "deck/source.hpp"
#include "engine/agree.hpp"
#include "kernels/library.hpp"
#include "meters/meter.hpp"
#include "plan_fit.hpp"
#include "topology/system.hpp"

namespace minitaw::app {
namespace {

using comm::mpi::check;

/// OMP_NUM_THREADS if the user said it, else this rank's share of the cores that it may run on.
int threads_of(const topology::Job& place) {
  if (const char* asked = std::getenv("OMP_NUM_THREADS"); asked != nullptr && std::atoi(asked) > 0)
    return std::atoi(asked);
  const int here = place.nodes.size(place.node);
  return std::max(1, std::min(place.cores, place.node_cores / here));
}

/// This rank's share of its node's devices.
topology::Device choose_device(const topology::Job& place) {
  const std::vector<topology::Device> visible = topology::visible_devices();
  const int index = topology::device_of(place.local_rank, static_cast<int>(visible.size()));
  return index < 0 ? topology::Device{} : visible[static_cast<std::size_t>(index)];
}

Kokkos::InitializationSettings kokkos_settings(int threads, const topology::Device& device) {
  // Its warnings speak to people who set up OpenMP by hand.
  auto settings = Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true);
  if (device.index >= 0) settings.set_device_id(device.index);
  return settings;
}

std::string text_of(const topology::Device& device, int threads) {
  if (device.index < 0) return fmt::format("host, {} thread{}", threads, threads == 1 ? "" : "s");
  return fmt::format("device {}, {}, {:.1f} GiB", device.index, device.name,
                     static_cast<double>(device.bytes) / (1024.0 * 1024.0 * 1024.0));
}

std::vector<std::string> gather(const std::string& text) {
  return comm::mpi::gather_texts(text, MPI_COMM_WORLD);
}

std::vector<record::RankPlace> places(const topology::Job& job, const topology::Device& device, int threads) {
  const std::vector<std::string> cores = gather(job.core_list), units = gather(text_of(device, threads)),
                                 uuids = gather(device.uuid);
  std::vector<record::RankPlace> ranks;
  for (int r = 0; r < job.nodes.ranks(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    ranks.push_back({job.nodes.group_of(r), cores[at], units[at], uuids[at]});
  }
  return ranks;
}

std::vector<std::string> uuids(const std::vector<record::RankPlace>& ranks) {
  std::vector<std::string> result;
  for (const record::RankPlace& rank : ranks) result.push_back(rank.uuid);
  return result;
}

/// A device that several ranks share would count for each of them.
std::shared_ptr<meters::Meter> meter_of(const topology::Device& device, bool shared) {
  return shared ? meters::no_meter("ranks share a device") : meters::make_meter(device.uuid);
}

/// Every rank of this node has its compute threads and one that communicates.
comm::mpi::Patience waiting(const topology::Job& place, int threads) {
  const int ranks = place.nodes.size(place.node);
  comm::mpi::Patience patience = comm::mpi::patience(place.node_cores, ranks * (threads + 1));
  patience.hurries = place.node_cores >= ranks * threads;
  if (!kernels::on_host) patience.eager = std::chrono::microseconds(100);
  return patience;
}

std::string broadcast(std::string text, MPI_Comm comm) {
  std::uint64_t size = text.size();
  check(MPI_Bcast(&size, 1, MPI_UINT64_T, 0, comm), "sharing the deck");
  text.resize(size);
  check(MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, 0, comm), "sharing the deck");
  return text;
}

}  // namespace

void add_job_flags(CLI::App& verb, JobFlags& flags) {
  verb.add_option("--watchdog", flags.watchdog, "seconds without progress after which a step is given up")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb.add_option("--memory", flags.memory,
                  "use no more than this for each rank: 20G (default: what is free at the start)")
      ->type_name("SIZE");
  verb.add_flag("--share-devices", flags.share_devices,
                "let several ranks use one device, for tests; communication then goes through MPI");
}

MpiJob::MpiJob(int& argc, char**& argv, const JobFlags& flags)
    : environment_(argc, argv), place_(topology::detect(MPI_COMM_WORLD)), threads_(threads_of(place_)),
      device_(choose_device(place_)), flags_(flags), kokkos_(kokkos_settings(threads_, device_)),
      hosts_(place_.hosts, flags.hosts), ranks_(places(place_, device_, threads_)),
      device_uuids_(uuids(ranks_)), cpus_(gather(topology::cpu_text())),
      systems_(gather(hosts_.hidden(topology::os_text()))),
      job_(MPI_COMM_WORLD, {.patience = std::chrono::duration<double>(flags.watchdog),
                            .waiting = waiting(place_, threads_),
                            .shared_devices = topology::shared_device(device_uuids_).has_value(),
                            .timeline = flags.timeline,
                            .meter = meter_of(device_, topology::shared_device(device_uuids_).has_value())}) {
}

std::optional<std::uint64_t> MpiJob::memory() const {
  if (flags_.memory.empty()) return std::nullopt;
  return parse_memory(flags_.memory, "--memory");
}

void MpiJob::require_own_devices() const {
  if (!flags_.share_devices) topology::require_own_devices(device_uuids_);
}

deck::Deck MpiJob::read(const std::string& path, const std::vector<std::string>& overrides) const {
  std::string text;
  engine::agree(MPI_COMM_WORLD, [&] {
    if (environment_.rank() == 0) text = deck::read_text(path);
  });
  text = broadcast(std::move(text), MPI_COMM_WORLD);
  return deck::make_deck(
      text, path, overrides,
      {.ranks = environment_.ranks(), .node_sizes = place_.nodes.sizes(), .adapters = place_.adapters});
}

void MpiJob::describe(record::Provenance& p) const {
  for (const record::RankPlace& rank : ranks_) {
    p.hosts.push_back(hosts_.text(rank.node));
    p.nodes.push_back(rank.node);
    p.cores.push_back(rank.cores);
    p.devices.push_back(rank.uuid.empty() ? rank.unit : fmt::format("{}, {}", rank.unit, rank.uuid));
  }
  p.cpu = cpus_;
  p.os = systems_;
}

}  // namespace minitaw::app
