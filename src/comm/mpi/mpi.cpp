// SPDX-License-Identifier: BSD-3-Clause
#include "comm/mpi/mpi.hpp"
#include <algorithm>
#include <exception>
#include <numeric>
#include <ranges>
#include <regex>
#include <sched.h>
#include <unistd.h>
#include "base/error.hpp"
#include "topology/system.hpp"

namespace minitaw::comm::mpi {
int rank_in(MPI_Comm world, const schedule::Program& program) {
  if (const int ranks = size_of(world); static_cast<std::size_t>(ranks) != program.ranks.size())
    throw LogicError(
        fmt::format("a program for {} ranks is executed by {}", program.ranks.size(), ranks));
  return rank_in(world);
}

void wait(std::span<MPI_Request> requests, const WaitPolicy& policy) {
  Backoff pause(policy);
  for (int done = 0;; pause.once()) {
    check(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    if (done != 0)
      return;
  }
}

double largest(double mine, MPI_Comm comm, std::chrono::microseconds nap) {
  double all = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, comm, &request), "MPI_Iallreduce");
  wait({&request, 1}, {.spins = 0, .yields = 0, .shortest_sleep = nap, .longest_sleep = nap});
  return all;
}

double round_trip(int peer, bool first, MPI_Comm comm) {
  constexpr int tag = 2;
  double word = 0;
  const double begin = MPI_Wtime();
  for (const bool sends : {first, !first}) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(sends ? MPI_Isend(&word, 1, MPI_DOUBLE, peer, tag, comm, &request)
                : MPI_Irecv(&word, 1, MPI_DOUBLE, peer, tag, comm, &request),
        "a ping");
    wait({&request, 1}, measuring);
  }
  return MPI_Wtime() - begin;
}

double Exchange::run(std::span<const int> to,
    std::span<const int> from,
    int count,
    std::size_t bytes,
    MPI_Comm comm) {
  constexpr int under_way = 2, tag = 1;
  const auto size = static_cast<int>(bytes);
  sent_.resize(std::max(sent_.size(), bytes));
  received_.resize(std::max(received_.size(), under_way * from.size()));
  for (std::vector<std::byte>& place : received_)
    place.resize(std::max(place.size(), bytes));
  const double begin = MPI_Wtime();
  double arrived = begin;
  for (int message = 0; message < count; message += under_way) {
    std::vector<MPI_Request> in, out;
    for (int i = message; i < std::min(count, message + under_way); ++i) {
      for (const int peer : from) {
        std::byte* const place = received_[in.size()].data();
        check(MPI_Irecv(place, size, MPI_BYTE, peer, tag, comm, &in.emplace_back()), "MPI_Irecv");
      }
      for (const int peer : to)
        check(MPI_Isend(sent_.data(), size, MPI_BYTE, peer, tag, comm, &out.emplace_back()),
            "MPI_Isend");
    }
    wait(in, measuring);
    arrived = MPI_Wtime();
    wait(out, measuring);
  }
  return arrived - begin;
}

std::vector<std::string> gather_texts(const std::string& mine, MPI_Comm comm) {
  const int ranks = size_of(comm);
  const int size = static_cast<int>(mine.size());
  std::vector<int> sizes(ranks), starts(ranks);
  check(MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, comm), "gathering texts");
  std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), 0);
  std::string all(starts.back() + sizes.back(), '\0');
  check(MPI_Allgatherv(
            mine.data(), size, MPI_CHAR, all.data(), sizes.data(), starts.data(), MPI_CHAR, comm),
      "gathering texts");
  return list_of(
      std::views::iota(0, ranks), [&](int r) { return all.substr(starts[r], sizes[r]); });
}

std::string library_line(const std::string& text) {
  const std::string first = text.substr(0, text.find('\n'));
  const std::string line = std::regex_replace(
      first.substr(0, first.find(", package:")), std::regex(" Version:\\s+|\\s+"), " ");
  std::smatch device;
  const bool has_device = std::regex_search(text, device, std::regex("MPICH Device:\\s*(\\S+)"));
  return has_device ? fmt::format("{}, device {}", line, device.str(1)) : line;
}

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  return library_line(std::string(text.data(), length));
}

Environment::Environment(int& argc, char**& argv) : exceptions_(std::uncaught_exceptions()) {
  int offered = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &offered), "MPI_Init_thread");
  if (offered < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw InputError(
        "this MPI does not offer MPI_THREAD_MULTIPLE; run with an MPI built with thread support");
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  rank_ = rank_in(MPI_COMM_WORLD);
  ranks_ = size_of(MPI_COMM_WORLD);
  try {
    topology::require_launched_together(ranks_);
  } catch (const InputError&) {
    MPI_Finalize();
    throw;
  }
}

Environment::~Environment() {
  if (std::uncaught_exceptions() > exceptions_)
    MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
}
}  // namespace minitaw::comm::mpi

namespace minitaw::topology {
namespace {
using comm::mpi::check, comm::mpi::rank_in;

/// Cores this process may run on; none if the system does not say (more than 1024 cores, say).
cpu_set_t own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0)
    CPU_ZERO(&cores);
  return cores;
}

int count(const cpu_set_t& cores) {
  return std::max(CPU_COUNT(&cores), 1);
}

std::string list(const cpu_set_t& cores) {
  std::vector<int> numbers;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &cores))
      numbers.push_back(core);
  return numbers.empty() ? "unknown" : ranges_text(numbers);
}
}  // namespace

Groups nodes_of(std::span<const int> node_of_rank) {
  std::vector<int> sizes, seen;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const int node = node_of_rank[rank];
    if (!seen.empty() && seen.back() == node) {
      ++sizes.back();
      continue;
    }
    if (std::ranges::find(seen, node) != seen.end())
      throw InputError(fmt::format(
          "rank {} runs on a node of earlier ranks, but rank {} does not: place consecutive "
          "ranks on each node (mpiexec -map-by core or -ppn N, srun --distribution=block)",
          rank,
          rank - 1));
    seen.push_back(node);
    sizes.push_back(1);
  }
  return Groups(std::move(sizes));
}

Placement detect(MPI_Comm world) {
  comm::mpi::OwnComm node;
  check(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node.comm),
      "MPI_Comm_split_type");
  int first = rank_in(world);  // of the node: its name
  check(MPI_Bcast(&first, 1, MPI_INT, 0, node.comm), "MPI_Bcast of the first rank of a node");
  std::vector<int> firsts(comm::mpi::size_of(world));
  check(MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, world),
      "MPI_Allgather of nodes");
  Placement place{.nodes = nodes_of(firsts), .hosts = {}, .core_list = {}};
  place.node = place.nodes.group_of(rank_in(world));
  place.local_rank = rank_in(node.comm);

  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::vector<std::string> names = comm::mpi::gather_texts(name.data(), world);
  for (int n = 0; n < place.nodes.count(); ++n)
    place.hosts.push_back(names[place.nodes.first(n)]);

  const cpu_set_t own = own_cores();
  cpu_set_t all;
  check(MPI_Allreduce(&own, &all, sizeof(all), MPI_BYTE, MPI_BOR, node.comm),
      "MPI_Allreduce of cores");
  place.cores = count(own);
  place.core_list = list(own);
  place.node_cores = count(all);
  return place;
}
}  // namespace minitaw::topology
