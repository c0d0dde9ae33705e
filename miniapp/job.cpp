// SPDX-License-Identifier: BSD-3-Clause
#include "job.hpp"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/ranges.h>
#include <regex>
#include <sstream>
#include <thread>
#include "base/error.hpp"
#include "cli/cli11.hpp"
#include "deck/value.hpp"
#include "engine/make_transport.hpp"
#include "instruments.hpp"
#include "record/table.hpp"
#include "topology/memory.hpp"
#include "topology/team.hpp"

namespace minitaw::app {
namespace {
/// OMP_NUM_THREADS, else this rank's share of the cores that it may run on, and of the quota of its
/// control group. Tells what is unusual.
int threads_of(const topology::Placement& place, std::vector<std::string>& remarks) {
  const int here = place.nodes.size(place.node);
  const char* const asked = std::getenv("OMP_NUM_THREADS");
  const bool is_asked = asked != nullptr && std::atoi(asked) > 0;
  const int threads = is_asked
                          ? std::atoi(asked)
                          : std::max(1, std::min<int>(place.cores.size(), place.node_cores / here));
  const double quota = place.quota.processors;
  if (quota >= threads)
    return threads;
  const int taken = is_asked ? threads : static_cast<int>(std::ceil(quota));
  remarks.push_back(fmt::format("a processor quota leaves {:.3g} cores a rank ({}) for {}{}",
      quota,
      place.quota.file,
      counted(taken, "thread"),
      taken < threads ? fmt::format(" instead of {}", threads) : ""));
  return taken;
}

/// Starts the threads that compute, and tells if they are not as wanted.
int start_threads(int wanted, topology::Placement& place, std::vector<std::string>& remarks) {
  topology::Team team = topology::start_team(wanted);
  if (team.was_dynamic)
    remarks.emplace_back("OMP_DYNAMIC is switched off: kernels need the same threads every time");
  if (team.threads < wanted)
    remarks.push_back(fmt::format("OpenMP grants {} instead of {} (OMP_THREAD_LIMIT or "
                                  "OMP_MAX_ACTIVE_LEVELS)",
        counted(team.threads, "thread"),
        wanted));
  place.set_processors(std::move(team.processors));
  return team.threads;
}

/// On rank 0: what ranks have to remark, each sentence once.
std::vector<std::string> with_ranks(const std::vector<std::string>& remarks_of_ranks) {
  std::map<std::string, std::vector<int>> ranks;
  for (const int rank : indices(remarks_of_ranks)) {
    std::istringstream lines(remarks_of_ranks[rank]);
    for (std::string line; std::getline(lines, line);)
      ranks[line].push_back(rank);
  }
  std::vector<std::string> all;
  for (const auto& [remark, some] : ranks)
    all.push_back(fmt::format(
        "{} {}: {}", some.size() > 1 ? "ranks" : "rank", topology::ranges_text(some), remark));
  return all;
}

Kokkos::InitializationSettings kokkos_settings(int threads, const topology::Device& device) {
  // Its warnings are about settings of OpenMP that we make ourselves.
  auto settings =
      Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true);
  if (device.index >= 0)
    settings.set_device_id(device.index);
  return settings;
}

/// The texts of all ranks, on rank 0; elsewhere none.
std::vector<std::string> gather(const std::string& text) {
  return comm::mpi::gather_lists(text, MPI_COMM_WORLD, "gathering texts of ranks");
}

/// Lets all ranks learn of each other, of their nodes and devices. Kokkos starts afterwards.
/// Collective.
Site look_around(const JobFlags& flags) {
  // 1. Nodes, cores, threads. One rank of each node looks at its processors and adapters. All nodes
  // of scripts/cluster are one machine.
  std::optional<topology::Placement> found;
  topology::Site mine;
  std::vector<std::string> remarks;
  harness::agree(MPI_COMM_WORLD, [&] {
    found = comm::mpi::detect_placement(MPI_COMM_WORLD, [&] {
      mine = topology::look();
      return mine.core_of;
    });
  });
  Site site{.place = *found};
  topology::Placement& place = site.place;
  site.threads = start_threads(threads_of(place, remarks), place, remarks);

  // 2. Host names: rank 0 has all, others their own.
  std::map<int, std::string> hosts = {{place.node, place.host}};
  const std::vector<std::string> all_hosts = gather(place.host);
  for (const int r : indices(all_hosts))
    hosts.emplace(place.nodes.group_of(r), all_hosts[r]);
  site.hosts = record::HostNames(std::move(hosts), flags.hosts);

  // 3. Devices: ranks of a node take them in turn.
  const auto agree = [&](const std::function<void()>& work) {
    harness::agree(MPI_COMM_WORLD, work, site.hosts.text(place.node));
  };
  agree([&] {
    const std::vector<topology::Device> visible = topology::visible_devices();
    if (!visible.empty())
      site.device = visible[place.local_rank % visible.size()];
  });
  const bool one_machine = !record::shaped_links().empty();
  site.device.uuid = topology::identity(site.device, one_machine ? 0 : place.node);

  // 4. Who shares a device.
  site.uuids = gather(site.device.uuid);
  site.shared_devices =
      MpiJob::on_root([&] { return topology::shared_device(site.uuids).has_value(); });

  // 5. What rank 0 tells.
  const std::vector<std::string> cpus = gather(mine.cpu), adapters = gather(mine.adapters);
  const std::vector<std::string> units = gather(
      site.device.index < 0 ? "host, " + counted(site.threads, "thread") : text_of(site.device));
  const std::vector<std::vector<int>> cores =
      comm::mpi::gather_lists(place.cores, MPI_COMM_WORLD, "gathering cores of ranks");
  const std::vector<int> threads =
      comm::mpi::gather(site.threads, MPI_COMM_WORLD, "gathering threads of ranks");
  const std::vector<double> quotas =
      comm::mpi::gather(place.quota.processors, MPI_COMM_WORLD, "gathering quotas of ranks");
  for (const int r : indices(units)) {
    const int node = place.nodes.group_of(r), first = place.nodes.first(node);
    site.ranks.push_back({.machine = one_machine ? 0 : node,
        .cores = cores[r],
        .threads = threads[r],
        .quota = quotas[r],
        .node = node,
        .unit = units[r],
        .uuid = site.uuids[r],
        .site = {cpus[first], adapters[first]}});
  }
  const auto node_cores =
      comm::mpi::gather_lists(mine.cores, MPI_COMM_WORLD, "gathering cores of nodes");
  site.remarks = with_ranks(gather(fmt::format("{}", fmt::join(remarks, "\n"))));
  if (const std::string overlap = topology::overlap_text(site.ranks, node_cores); !overlap.empty())
    site.remarks.push_back(overlap);
  if (site.device.index >= 0 && topology::runtime_version().empty())
    site.remarks.push_back(fmt::format("{} devices are known by Kokkos alone: no matrix units, a "
                                       "fence after every action; times say little of them",
        Kokkos::DefaultExecutionSpace::name()));
  site.adapters = MpiJob::on_root(
      [&] { return topology::fewest_adapters(list_of(site.ranks, &topology::RankPlace::site)); });
  return site;
}

/// Makes the instruments. Collective.
harness::Instruments instruments_of(const Site& site) {
  const bool on_host = kernels::on_host;
  return make_instruments({.place = site.place,
      .places = on_host ? site.ranks : std::vector<topology::RankPlace>(),
      .crowded = on_host && MpiJob::on_root([&] { return topology::is_crowded(site.ranks); }),
      .device_uuid = site.device.uuid,
      .shared_devices = site.shared_devices});
}

/// How ranks wait, where each rank of this node has compute threads and one that communicates.
comm::WaitPolicy waiting(const topology::Placement& place, int threads) {
  const int ranks = place.nodes.size(place.node);
  const double cores = std::min<double>(place.node_cores, ranks * place.quota.processors);
  comm::WaitPolicy policy = comm::wait_policy(static_cast<int>(cores), ranks * (threads + 1));
  if (!kernels::on_host)
    policy.eager = std::chrono::microseconds(100);
  return policy;
}

std::string kokkos_version() {
  return fmt::format("{}.{}.{} {}",
      KOKKOS_VERSION_MAJOR,
      KOKKOS_VERSION_MINOR,
      KOKKOS_VERSION_PATCH,
      Kokkos::DefaultExecutionSpace::name());
}

/// Ends the process; MPI does not answer.
void end_without_mpi(const std::string& report) {
  print_error(report + ": a rank of the job does not answer");
  std::_Exit(1);
}

using namespace std::chrono_literals;

/// Ends the process some time later, even if a file or MPI does not answer.
void end_in_any_case(int code) {
  static constexpr auto most = 20s;
  std::thread([code] {
    std::this_thread::sleep_for(most);
    std::_Exit(code);
  }).detach();
}

/// Ends all ranks.
[[noreturn]] void abort_job(int code) {
  constexpr auto time_to_print = 2s;  // mpiexec drops output that it has not passed on by the end
  std::this_thread::sleep_for(time_to_print);
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

/// Prints the report, or lets the instrument that knows the cause print it; records it; ends the
/// job.
void end_job(int rank,
    const harness::Instruments& instruments,
    const std::string& report,
    const MpiJob::Record& record) {
  constexpr auto time_to_record = 5s;  // rank 0 records before others end the job
  end_in_any_case(1);

  const std::string words = fmt::format("rank {}: {}", rank, report);
  std::optional<std::string> cause;
  for (const auto& instrument : instruments)
    if (!cause)
      cause = instrument->explain_stall(words);
  if (!cause)
    print_error(words, false);
  if (rank != 0)
    std::this_thread::sleep_for(time_to_record);
  record(cause.value_or("").empty() ? std::regex_replace(words, std::regex("\n *"), ", ") : *cause);
  abort_job(1);
}

/// What ranks must have read alike: one file on every node. Left out combinations say which file is
/// missing.
std::vector<std::string> files_of(const deck::Deck& deck) {
  std::vector<std::string> files = deck.left_out;
  for (const Case& c : deck.cases) {
    files.push_back("schedule: " + c.schedule);
    if (!c.data_sum.empty())
      files.push_back(fmt::format("data: {} has the checksum {}", c.data, c.data_sum));
  }
  std::ranges::sort(files);
  const auto twice = std::ranges::unique(files);
  files.erase(twice.begin(), twice.end());
  return files;
}
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

MpiJob::MpiJob(const comm::mpi::Environment& mpi, engine::Watchdog& dog, const JobFlags& given)
    : Site(look_around(given)),
      flags(given),
      environment(mpi),
      watchdog(dog),
      kokkos(kokkos_settings(threads, device)),  // on the device that was chosen
      instruments(instruments_of(*this)),        // some have threads and communicators
      runner(MPI_COMM_WORLD,
          {.step = {.watchdog = &watchdog, .waiting = waiting(place, threads)},
              .shared_devices = shared_devices,
              .timeline = flags.timeline,
              .instruments = instruments,
              .host = hosts.text(place.node)}) {}

void MpiJob::agree(const std::function<void()>& work) const {
  harness::agree(MPI_COMM_WORLD, work, hosts.text(place.node));
}

deck::Deck MpiJob::read(const DeckOptions& options) const {
  watchdog.phase("reading the deck and its files");
  std::string text;
  harness::agree_on_root(MPI_COMM_WORLD, [&] { text = deck::read_text(options.path); });
  text = comm::mpi::broadcast(text, MPI_COMM_WORLD);
  deck::Deck deck;
  agree([&] {
    deck = deck::make_deck(text,
        options.path,
        options.overrides,
        {.ranks = environment.ranks(), .node_sizes = place.nodes.sizes(), .adapters = adapters});
  });
  const std::vector<std::string> files = files_of(deck);
  const std::string of_first =
      comm::mpi::broadcast(fmt::format("{}", fmt::join(files, "\n")), MPI_COMM_WORLD);
  agree([&] {
    for (const std::string& file : files)
      if (of_first.find(file) == of_first.npos)
        throw InputError(
            "{}; rank 0 has read something else, so use the same file on every node", file);
  });
  watchdog.pause();
  return deck;
}

std::string MpiJob::map_text() const {
  std::string text = record::map_text(ranks, hosts);
  for (const std::string& sentence : remarks)
    text += fmt::format("# {}\n", sentence);
  return text;
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
  using record::text_data;
  record::Provenance p = record::collect(deck, arguments, ranks, hosts);
  p["kokkos"] = text_data(kokkos_version());
  p["mpi"] = text_data(comm::mpi::library_version());
  p["nccl"] = text_data(engine::nccl_version());
  p["driver"] = text_data(topology::driver_version());
  std::vector<std::string> libraries = {record::hdf5_text()};
  if (const std::string runtime = topology::runtime_version(); !runtime.empty())
    libraries.push_back(runtime);
  for (const auto& [name, version] : kernels::library_versions())
    if (!version.empty())
      libraries.push_back(fmt::format("{} {}", name, version));
  p["libraries"] = record::list_data(std::move(libraries));
  return p;
}

void MpiJob::record_by(Record record) {
  watchdog.on_expiry([rank = environment.rank(), all = instruments, record = std::move(record)](
                         const std::string& report) { end_job(rank, all, report, record); });
}

int JobVerb::execute(const Invocation& invocation) {
  using Seconds = engine::Watchdog::Seconds;
  before_mpi();
  topology::return_freed_memory();
  const Seconds patience(std::max(flags_.watchdog, 30.0));
  engine::Watchdog watchdog(Seconds(flags_.watchdog), end_without_mpi);  // outlives MPI
  watchdog.phase("the start of MPI", patience);
  const comm::mpi::Environment environment(invocation.argc, invocation.argv);
  std::optional<MpiJob> mpi;  // outlives the handlers: its end may wait for other ranks
  int code = 0;
  try {
    mpi.emplace(environment, watchdog, flags_);
    watchdog.pause();
    mpi->record_by();
    mpi->agree(kernels::require_one_layout);
    if (!flags_.share_devices)
      harness::agree_on_root(MPI_COMM_WORLD, [&] { topology::require_own_devices(mpi->uuids); });
    code = work(invocation, *mpi);
  } catch (const harness::AgreedError& error) {
    code = error.cause == harness::AgreedError::Cause::input ? bad_input_code : failure_code;
    if (environment.rank() == 0)
      print_error(error.what());
  } catch (const std::exception& error) {
    code = dynamic_cast<const InputError*>(&error) != nullptr ? bad_input_code : failure_code;
    end_in_any_case(code);
    const std::string host = mpi ? " on " + mpi->hosts.text(mpi->place.node) : "";
    print_error(fmt::format("rank {}{}: {}", environment.rank(), host, error.what()));
    abort_job(code);
  }
  watchdog.on_expiry(end_without_mpi);
  watchdog.phase("the end of MPI", patience);
  return code;
}
}  // namespace minitaw::app
