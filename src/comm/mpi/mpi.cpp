// SPDX-License-Identifier: BSD-3-Clause
#include "comm/mpi/mpi.hpp"
#include <algorithm>
#include <exception>
#include <fmt/ranges.h>
#include <map>
#include <ranges>
#include <regex>
#include <sched.h>
#include <sstream>
#include <unistd.h>
#include "base/error.hpp"
#include "topology/processors.hpp"
#include "topology/system.hpp"

namespace minitaw::comm::mpi {
int rank_in(MPI_Comm world, const schedule::Program& program) {
  if (const int ranks = size_of(world); ranks != program.job_ranks())
    throw LogicError("a program for {} ranks is executed by {}", program.job_ranks(), ranks);
  return rank_in(world);
}

void wait(std::span<MPI_Request> requests, const WaitPolicy& policy) {
  Backoff pause(policy);
  for (int done = 0;; pause.once()) {
    check_mpi(
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
        "MPI_Testall");
    if (done != 0)
      return;
  }
}

double largest(double mine, MPI_Comm comm) {
  constexpr std::chrono::microseconds nap(200);
  double all = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, comm, &request), "MPI_Iallreduce");
  wait({&request, 1}, {.spins = 0, .yields = 0, .shortest_sleep = nap, .longest_sleep = nap});
  return all;
}

std::string broadcast(std::string text, MPI_Comm comm, int root) {
  int size = static_cast<int>(text.size());
  check_mpi(MPI_Bcast(&size, 1, MPI_INT, root, comm), "sharing the length of a text");
  text.resize(size);
  check_mpi(MPI_Bcast(text.data(), size, MPI_CHAR, root, comm), "sharing a text");
  return text;
}

std::pair<int, std::string> first_text(const std::string& mine, MPI_Comm comm) {
  const int ranks = size_of(comm);
  int first = mine.empty() ? ranks : rank_in(comm);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm), "looking for a text");
  return {first, first < ranks ? broadcast(mine, comm, first) : ""};
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
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  return library_line(std::string(text.data(), length));
}

Environment::Environment(int& argc, char**& argv) : exceptions_(std::uncaught_exceptions()) {
  int offered = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &offered), "MPI_Init_thread");
  if (offered < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw InputError(
        "this MPI does not offer MPI_THREAD_MULTIPLE; run with an MPI built with thread support");
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
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

namespace {
/// The smallest part of a processor quota that is left for each rank of this node, where those in
/// one control group share it.
topology::ProcessorQuota part_of_quota(MPI_Comm node) {
  const std::vector<topology::ProcessorQuota> quotas = topology::processor_quotas();
  std::string groups;
  for (const topology::ProcessorQuota& quota : quotas)
    groups += quota.group + "\n";
  const std::vector<std::string> of_ranks = gather_lists(groups, node, "gathering control groups");
  std::istringstream lines(broadcast(fmt::format("{}", fmt::join(of_ranks, "")), node));
  std::map<std::string, int> ranks;
  for (std::string group; std::getline(lines, group);)
    ++ranks[group];
  topology::ProcessorQuota least;
  for (topology::ProcessorQuota quota : quotas) {
    quota.processors /= ranks.at(quota.group);
    if (quota.processors < least.processors)
      least = quota;
  }
  return least;
}
}  // namespace

topology::Placement detect_placement(
    MPI_Comm world, const std::function<std::vector<int>()>& look_at_cores) {
  OwnComm node;
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node.comm),
      "MPI_Comm_split_type");
  int first = rank_in(world);  // of the node: its name
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, node.comm), "MPI_Bcast of the first rank of a node");
  topology::Placement place{
      .nodes = topology::nodes_of(all_gather(first, world, "gathering nodes of ranks"))};
  place.node = place.nodes.group_of(rank_in(world));
  place.local_rank = rank_in(node.comm);

  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  place.host = name.data();

  std::array<int, CPU_SETSIZE> core_of{};
  std::ranges::fill(core_of, -1);
  if (place.local_rank == 0 && look_at_cores)
    std::ranges::copy(look_at_cores() | std::views::take(core_of.size()), core_of.begin());
  check_mpi(
      MPI_Bcast(core_of.data(), sizeof core_of, MPI_BYTE, 0, node.comm), "telling cores of a node");
  place.core_of.assign(core_of.begin(), core_of.end());
  place.set_processors(topology::allowed_processors());

  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : place.cores)
    CPU_SET(core, &cores);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, node.comm),
      "gathering cores of a node");
  place.node_cores = std::max(CPU_COUNT(&cores), 1);
  place.quota = part_of_quota(node.comm);
  return place;
}
}  // namespace minitaw::comm::mpi
