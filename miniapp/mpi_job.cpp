#include "mpi_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "comm/mpi/check.hpp"
#include "deck/source.hpp"
#include "engine/agree.hpp"
#include "kernels/library.hpp"

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
  if (device.index < 0) return fmt::format("host, {} threads", threads);
  return fmt::format("device {}, {}, {:.1f} GiB, {}", device.index, device.name,
                     static_cast<double>(device.bytes) / (1024.0 * 1024.0 * 1024.0), device.uuid);
}

/// A short text of every rank.
std::vector<std::string> gather(const std::string& text, int ranks, MPI_Comm comm) {
  constexpr std::size_t longest = 256;
  std::string mine = text.substr(0, longest - 1);
  mine.resize(longest, '\0');
  std::string all(longest * static_cast<std::size_t>(ranks), '\0');
  check(MPI_Allgather(mine.data(), longest, MPI_CHAR, all.data(), longest, MPI_CHAR, comm),
        "gathering device names");
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    texts.emplace_back(all.c_str() + r * longest);
  return texts;
}

/// Compute and communication threads of all ranks of this node.
comm::mpi::Patience waiting(const topology::Job& place, int threads) {
  return comm::mpi::patience(place.node_cores, place.nodes.size(place.node) * (threads + 2));
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
  verb.add_flag("--share-devices", flags.share_devices,
                "let several ranks use one device, for tests; communication then goes through MPI");
}

MpiJob::MpiJob(int& argc, char**& argv, const JobFlags& flags)
    : environment_(argc, argv), place_(topology::detect(MPI_COMM_WORLD)), threads_(threads_of(place_)),
      device_(choose_device(place_)), flags_(flags), kokkos_(kokkos_settings(threads_, device_)),
      device_uuids_(gather(device_.uuid, environment_.ranks(), MPI_COMM_WORLD)),
      device_names_(gather(text_of(device_, threads_), environment_.ranks(), MPI_COMM_WORLD)),
      job_(MPI_COMM_WORLD, {.patience = std::chrono::duration<double>(flags.watchdog),
                            .waiting = waiting(place_, threads_),
                            .shared_devices = topology::shared_device(device_uuids_).has_value(),
                            .timeline = flags.timeline}) {}

void MpiJob::require_own_devices() const {
  if (!flags_.share_devices) topology::require_own_devices(device_uuids_);
}

deck::Deck MpiJob::read(const std::string& path, const std::vector<std::string>& overrides) const {
  std::string text;
  engine::agree(MPI_COMM_WORLD, [&] {
    if (environment_.rank() == 0) text = deck::read_text(path);
  });
  text = broadcast(std::move(text), MPI_COMM_WORLD);
  return deck::make_deck(text, path, overrides, {environment_.ranks(), place_.nodes.sizes(), false});
}

std::vector<std::string> MpiJob::hosts() const {
  std::vector<std::string> result;
  for (int r = 0; r < environment_.ranks(); ++r) result.push_back(place_.hosts[place_.nodes.group_of(r)]);
  return result;
}

std::string MpiJob::map_text() const {
  std::string text;
  for (int node = 0; node < place_.nodes.count(); ++node)
    text += fmt::format("# node {}: ranks {} to {} on {}\n", node, place_.nodes.first(node),
                        place_.nodes.first(node) + place_.nodes.size(node) - 1, place_.hosts[node]);
  if (device_.index < 0) return text + fmt::format("# threads per rank: {}\n", threads_);
  for (int rank = 0; rank < environment_.ranks(); ++rank)
    text += fmt::format("# rank {}: {}\n", rank, device_names_[static_cast<std::size_t>(rank)]);
  return text;
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  std::string version(text.data(), length);
  version.resize(std::min(version.size(), version.find('\n')));
  std::ranges::replace(version, '\t', ' ');
  return version;
}

std::vector<std::string> library_texts() {
  std::vector<std::string> texts;
  for (const auto& [name, version] : kernels::library_versions())
    texts.push_back(fmt::format("{} {}", name, version));
  return texts;
}

std::string kokkos_version() {
  return fmt::format("{}.{}.{} {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100,
                     Kokkos::DefaultExecutionSpace::name());
}

}  // namespace minitaw::app
