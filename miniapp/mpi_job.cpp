#include "mpi_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "comm/mpi/check.hpp"
#include "deck/source.hpp"
#include "engine/agree.hpp"

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

Kokkos::InitializationSettings kokkos_settings(int threads) {
  // Its warnings speak to people who set up OpenMP by hand.
  return Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true);
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

MpiJob::MpiJob(int& argc, char**& argv, double watchdog)
    : environment_(argc, argv), place_(topology::detect(MPI_COMM_WORLD)), threads_(threads_of(place_)),
      kokkos_(kokkos_settings(threads_)),
      job_(MPI_COMM_WORLD, std::chrono::duration<double>(watchdog), waiting(place_, threads_)) {}

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
  return text + fmt::format("# threads per rank: {}\n", threads_);
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

std::string kokkos_version() {
  return fmt::format("{}.{}.{} {}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100,
                     Kokkos::DefaultExecutionSpace::name());
}

}  // namespace minitaw::app
