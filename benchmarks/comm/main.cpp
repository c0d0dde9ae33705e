#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <cstdio>
#include <fstream>

#include "base/error.hpp"
#include "comm/mpi/detect.hpp"
#include "comm/mpi/mpi.hpp"
#include "table.hpp"

namespace minitaw::bench {
namespace {

void write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path);
  if (!(file << text << std::flush)) throw InputError(fmt::format("{} cannot be written", path));
}

/// As a run waits: the compute threads of a rank and the one that communicates want a core each. While the
/// calls of this benchmark wait nothing computes, so with a core for each compute thread they give way for
/// some milliseconds, as long as the longest messages take inside a node, before they sleep.
comm::mpi::WaitPolicy waiting(const CommOptions& options) {
  const topology::Job place = topology::detect(MPI_COMM_WORLD);
  const int ranks = place.nodes.size(place.node);
  const int threads = ranks * (options.threads + 1);
  comm::mpi::WaitPolicy policy = comm::mpi::wait_policy(options.spin ? threads : place.node_cores, threads);
  if (place.node_cores >= ranks * options.threads) policy.eager = std::chrono::milliseconds(20);
  return policy;
}

std::vector<Measured> measure_all(const CommOptions& options, int ranks) {
  const comm::mpi::WaitPolicy policy = waiting(options);
  std::vector<Measured> results;
  for (const Size& size : sizes_of(options, ranks)) {
    const Places places = places_of(size.groups);
    const std::unique_ptr<Backend> ours = make_ours(options.transport, places, policy);
    const std::unique_ptr<Backend> raw = make_raw(ours->name(), places);
    for (Measured& m : measure(size, places, *ours, raw.get(), options)) results.push_back(std::move(m));
  }
  return results;
}

void tell(const CommOptions& options, const std::vector<Measured>& results) {
  fmt::print("{}: transport {} beside {}, {} rounds in turn{}\n\n{}", comm::mpi::library_version(),
             results.front().backend, results.front().raw.empty() ? "nothing" : results.front().raw_backend,
             options.rounds, options.verify ? ", contents verified" : "", plain_table(results));
  write(options.markdown, markdown_table(results));
  write(options.json, json_text(results));
}

int run(int argc, char** argv, int rank, int ranks) {
  const CommOptions options = read_options(argc, argv);
  if (!options.help.empty()) {
    if (rank == 0) fmt::print("{}", options.help);
    return 0;
  }
  if (!options.spoil.empty()) (void)parse_operation(options.spoil);
  const std::vector<Measured> results = measure_all(options, ranks);
  if (rank == 0) tell(options, results);
  return 0;
}

/// Every rank has come here with the same error; one tells.
int complain(int rank, const std::exception& error, int code) {
  if (rank == 0) fmt::print(stderr, "minitaw_comm: {}\n", error.what());
  return code;
}

}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  using namespace minitaw;
  try {
    const comm::mpi::Environment mpi(argc, argv);
    const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
    try {
      return bench::run(argc, argv, mpi.rank(), mpi.ranks());
    } catch (const InputError& error) {
      return bench::complain(mpi.rank(), error, 2);
    } catch (const bench::Wrong& error) {
      return bench::complain(mpi.rank(), error, 1);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_comm: {}\n", error.what());
    return 1;
  }
}
