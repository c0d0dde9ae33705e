// SPDX-License-Identifier: BSD-3-Clause
#include "job.hpp"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/value.hpp"
#include "engine/make_transport.hpp"
#include "instruments.hpp"
#include "record/table.hpp"
#include "topology/memory.hpp"

namespace minitaw::app {
namespace {
/// OMP_NUM_THREADS if the user said it, else this rank's share of the cores that it may run on.
int threads_of(const topology::Placement& place) {
  if (const char* asked = std::getenv("OMP_NUM_THREADS"); asked != nullptr && std::atoi(asked) > 0)
    return std::atoi(asked);
  const int here = place.nodes.size(place.node);
  return std::max(1, std::min<int>(place.cores.size(), place.node_cores / here));
}

/// What every rank does before they work together. All of them learn of one that fails, and where
/// it is.
void start(int rank, const std::string& host, const std::function<void()>& work) {
  harness::agree(MPI_COMM_WORLD, [&] {
    try {
      work();
    } catch (const std::exception& error) {
      throw InputError("rank {} on {}: {}", rank, host, error.what());
    }
  });
}

/// Ranks of a node take its devices in turn.
topology::Device choose_device(
    int rank, const topology::Placement& place, const record::HostNames& hosts) {
  topology::Device device;
  start(rank, hosts.text(place.node), [&] {
    const std::vector<topology::Device> visible = topology::visible_devices();
    if (!visible.empty())
      device = visible[place.local_rank % visible.size()];
  });
  return device;
}

Kokkos::InitializationSettings kokkos_settings(int threads, const topology::Device& device) {
  // Its warnings speak to people who set up OpenMP by hand.
  auto settings =
      Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true);
  if (device.index >= 0)
    settings.set_device_id(device.index);
  return settings;
}

std::string text_of(const topology::Device& device, int threads) {
  if (device.index < 0)
    return "host, " + counted(threads, "thread");
  return fmt::format(
      "device {}, {}, {:.1f} GiB", device.index, device.name, 0x1p-30 * device.bytes);
}

/// On rank 0; elsewhere none.
std::vector<std::string> gather(const std::string& text) {
  return comm::mpi::gather_lists(text, MPI_COMM_WORLD, "gathering texts of ranks");
}

/// Rank 0 knows the host of every node, other ranks that of their own.
std::map<int, std::string> hosts_of(const topology::Placement& place) {
  std::map<int, std::string> hosts = {{place.node, place.host}};
  const std::vector<std::string> all = gather(place.host);
  for (const int rank : indices(all))
    hosts.emplace(place.nodes.group_of(rank), all[rank]);
  return hosts;
}

/// On rank 0. Nodes of scripts/cluster have the cores of one machine.
std::vector<topology::RankPlace> places(const topology::Placement& job,
    const topology::Device& device,
    int threads,
    const std::vector<std::string>& uuids) {
  const topology::Site mine = job.local_rank == 0 ? topology::look() : topology::Site();
  const std::vector<std::string> units = gather(text_of(device, threads)), cpus = gather(mine.cpu),
                                 adapters = gather(mine.adapters);
  const std::vector<std::vector<int>> cores =
      comm::mpi::gather_lists(job.cores, MPI_COMM_WORLD, "gathering cores of ranks");
  const std::vector<int> threads_of =
      comm::mpi::gather(threads, MPI_COMM_WORLD, "gathering threads of ranks");
  const bool one_machine = !record::shaped_links().empty();
  std::vector<topology::RankPlace> ranks;
  for (const int r : indices(units)) {
    const int on = job.nodes.group_of(r), first = job.nodes.first(on);
    ranks.push_back({.machine = one_machine ? 0 : on,
        .cores = cores[r],
        .threads = threads_of[r],
        .node = on,
        .unit = units[r],
        .uuid = uuids[r],
        .site = {cpus[first], adapters[first]}});
  }
  return ranks;
}

/// Every rank of this node has its compute threads and one that communicates.
comm::WaitPolicy waiting(const topology::Placement& place, int threads) {
  const int ranks = place.nodes.size(place.node);
  comm::WaitPolicy policy = comm::wait_policy(place.node_cores, ranks * (threads + 1));
  if (!kernels::on_host)
    policy.eager = std::chrono::microseconds(100);
  return policy;
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  (void)H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

std::string kokkos_version() {
  return fmt::format("{}.{}.{} {}",
      KOKKOS_VERSION_MAJOR,
      KOKKOS_VERSION_MINOR,
      KOKKOS_VERSION_PATCH,
      Kokkos::DefaultExecutionSpace::name());
}

/// Name, version and build of those that no entry of their own has: "HDF5 1.14.5", "BLAS OpenBLAS
/// 0.3.29 ...".
std::vector<std::string> library_texts() {
  std::vector<std::string> texts = {"HDF5 " + hdf5_version()};
  for (const auto& [name, version] : kernels::library_versions())
    if (!version.empty())
      texts.push_back(fmt::format("{} {}", name, version));
  return texts;
}

/// Ends the process if MPI takes longer to start or end, which no guard can tell: a rank has
/// stopped. 0: that is over.
void end_after(double seconds) {
  std::signal(SIGALRM, [](int) {
    constexpr std::string_view sentence =
        "minitaw: a rank of the job does not answer while MPI starts or ends\n";
    [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, sentence.data(), sentence.size());
    _exit(1);
  });
  alarm(std::clamp(std::ceil(seconds), 0.0, 1e6));
}

struct AtEnd {
  double seconds;

  ~AtEnd() { end_after(seconds); }
};
}  // namespace

void add_job_flags(CLI::App& verb, JobFlags& flags) {
  verb.add_option(
          "--watchdog", flags.watchdog, "seconds without progress after which a step is given up")
      ->check(cli::number_of("seconds", 0.1, 1e6))
      ->type_name("SECONDS")
      ->capture_default_str();
  add_memory(verb,
      "--memory",
      flags.memory,
      "use no more than this for each rank: 20G (default: what is free at the start)");
  verb.add_flag("--share-devices",
      flags.share_devices,
      "let several ranks use one device, for tests; communication then goes through MPI");
}

MpiJob::MpiJob(const comm::mpi::Environment& mpi, const JobFlags& given)
    : flags(given),
      environment(mpi),
      place(comm::mpi::detect_placement(MPI_COMM_WORLD)),
      threads(threads_of(place)),
      hosts(hosts_of(place), flags.hosts),
      device(choose_device(mpi.rank(), place, hosts)),
      kokkos(kokkos_settings(threads, device)),
      uuids(gather(device.uuid)),
      shared_devices(on_root([this] { return topology::shared_device(uuids).has_value(); })),
      ranks(places(place, device, threads, uuids)),
      adapters(on_root([this] {
        return topology::fewest_adapters(list_of(ranks, &topology::RankPlace::site));
      })),
      runner(MPI_COMM_WORLD,
          {.step = {.stall_limit = std::chrono::duration<double>(flags.watchdog),
               .waiting = waiting(place, threads)},
              .shared_devices = shared_devices,
              .timeline = flags.timeline,
              .instruments = make_instruments({.place = place,
                  .places = kernels::on_host ? ranks : std::vector<topology::RankPlace>(),
                  .crowded =
                      kernels::on_host && on_root([this] { return topology::is_crowded(ranks); }),
                  .device_uuid = device.uuid,
                  .shared_devices = shared_devices})}) {}

deck::Deck MpiJob::read(const DeckOptions& deck) const {
  std::string text;
  harness::agree(MPI_COMM_WORLD, [&] {
    if (is_root())
      text = deck::read_text(deck.path);
  });
  return deck::make_deck(comm::mpi::broadcast(text, MPI_COMM_WORLD),
      deck.path,
      deck.overrides,
      {.ranks = environment.ranks(), .node_sizes = place.nodes.sizes(), .adapters = adapters});
}

std::string MpiJob::head_text(const deck::Deck& deck) const {
  std::string text = fmt::format("# {}\n{}{}{}",
      record::version_text(),
      map_text(),
      record::settings_text(record::preview(deck.cases)),
      record::links_text(record::shaped_links()));
  for (const std::string& sentence : deck.notes)
    text += fmt::format("# {}\n", sentence);
  return text;
}

record::Provenance MpiJob::provenance(
    const deck::Deck& deck, const std::vector<std::string>& arguments) const {
  using record::list_data, record::text_data, topology::RankPlace;
  const auto texts = [this](const auto& text_of_rank) {
    return list_data(list_of(ranks, text_of_rank));
  };
  record::Provenance p = record::collect(deck, arguments, hosts);
  p["hosts"] = texts([this](const RankPlace& r) { return hosts.text(r.node); });
  p["nodes"] = {
      list_of(ranks, [](const RankPlace& r) { return std::int64_t{r.node}; }), {ranks.size()}};
  p["cores"] = texts([](const RankPlace& r) { return topology::cores_text(r.cores); });
  p["devices"] = texts([](const RankPlace& r) {
    return r.uuid.empty() ? r.unit : fmt::format("{}, {}", r.unit, r.uuid);
  });
  p["cpu"] = texts([](const RankPlace& r) { return r.site.cpu; });
  p["adapters"] = texts([](const RankPlace& r) { return r.site.adapters; });
  p["kokkos"] = text_data(kokkos_version());
  p["mpi"] = text_data(comm::mpi::library_version());
  p["nccl"] = text_data(engine::nccl_version());
  p["cuda"] = text_data(topology::runtime_version());
  p["driver"] = text_data(topology::driver_version());
  p["libraries"] = list_data(library_texts());
  return p;
}

int in_job(
    const Invocation& invocation, const JobFlags& flags, const std::function<int(MpiJob&)>& work) {
  topology::return_freed_memory();
  const AtEnd after_mpi{0};
  const double patience = std::max(flags.watchdog, 30.0);
  end_after(patience);
  const comm::mpi::Environment environment(invocation.argc, invocation.argv);
  std::optional<MpiJob> mpi;  // it lives while errors are told: its end may wait for other ranks
  const AtEnd before_mpi_ends{patience};
  const auto told_by_first = [&](const std::exception& error, int code) {
    if (environment.rank() == 0)
      print_error(error.what());
    return code;
  };
  try {
    mpi.emplace(environment, flags);
    end_after(0);
    start(environment.rank(), mpi->hosts.text(mpi->place.node), kernels::require_one_layout);
    if (!flags.share_devices)
      harness::agree(MPI_COMM_WORLD, [&] { topology::require_own_devices(mpi->uuids); });
    return work(*mpi);
  } catch (const InputError& error) {
    return told_by_first(error, 2);
  } catch (const harness::AgreedError& error) {
    return told_by_first(error, 1);
  } catch (const std::exception& error) {
    print_error(fmt::format("rank {}: {}", environment.rank(), error.what()), false);
    throw;  // the environment's end stops the other ranks
  }
}
}  // namespace minitaw::app
