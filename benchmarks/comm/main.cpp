// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <limits>

#include "base/error.hpp"
#include "benchmark.hpp"
#include "case/result.hpp"
#include "cli/cli11.hpp"
#include "comm/mpi/mpi.hpp"
#include "deck/deck.hpp"
#include "engine/runtime.hpp"
#include "schedule/validate.hpp"

namespace minitaw::bench {
namespace {
/// The text to print instead of measuring anything (--help), or empty. Throws InputError.
std::string read_options(int argc, char** argv, CommOptions& options) {
  const CLI::Range whole_sizes(std::int64_t{1}, std::numeric_limits<std::int64_t>::max());
  CLI::App app("Messages and collectives of miniTaw's transport beside the library's own calls, in "
               "turn; start it with mpiexec.",
      "minitaw_comm");
  auto* const deck =
      app.add_option("--deck", options.deck, "sizes and groups of the shards of a deck's cases");
  deck->type_name("DECK.toml");
  cli::add_overrides(app, options.overrides)->needs(deck);
  app.add_option("--bytes", options.bytes, "sizes of messages, with commas between")
      ->delimiter(',')
      ->check(whole_sizes)
      ->type_name("N")
      ->capture_default_str()
      ->excludes(deck);
  app.add_option_function<std::string>(
         "--groups",
         [&options](const std::string& text) { options.groups = topology::parse_groups(text); },
         "groups of the ranks, 2+2 (default: the deck's, or one of all)")
      ->type_name("G");
  app.add_option("--transport", options.transport, "auto, mpi or nccl")->capture_default_str();
  app.add_option("--rounds", options.rounds, "measurements of each operation, ours and raw in turn")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->capture_default_str();
  auto* const verify =
      app.add_flag("--verify", options.verify, "compare what arrives with what must");
  app.add_option(
         "--spoil", options.spoil, "damage the result of this operation, for --verify to see")
      ->needs(verify);
  app.add_option("--markdown", options.markdown, "write the table there")->type_name("FILE");
  const std::string help = cli::parse(app, argc, argv);
  if (!options.spoil.empty() && std::ranges::count(operation_names, options.spoil) == 0)
    throw InputError("there is no operation '{}'; there are {}",
        options.spoil,
        fmt::join(operation_names, ", "));
  return help;
}

Size size_of(const Case& c, const topology::Groups& groups) {
  const model::Layout layout =
      model::make_layout(c.shape, schedule::cut_of(schedule::build_valid(request_of(c))));
  const model::Shard& shard = *std::ranges::max_element(layout.shards, {}, &model::Shard::elements);
  return {fmt::format("shard of {} block{}, H = {}",
              shard.layers,
              shard.layers == 1 ? "" : "s",
              c.shape.hidden),
      shard.elements,
      c.shape.dtype,
      groups};
}

std::vector<Size> of_deck(const CommOptions& options, int ranks) {
  std::vector<Size> sizes;
  const deck::Deck deck = deck::read_deck(options.deck, options.overrides, {ranks, {ranks}, false});
  for (const Case& c : deck.cases) {
    if (c.ranks != ranks)
      continue;
    const Size size = size_of(c, options.groups.value_or(c.groups));
    if (std::ranges::find(sizes, size) == sizes.end())
      sizes.push_back(size);
  }
  if (sizes.empty())
    throw InputError("{}: no case uses the {} ranks of this job", options.deck, ranks);
  return sizes;
}

std::vector<Size> of_bytes(const CommOptions& options, int ranks) {
  std::vector<Size> sizes;
  for (const std::int64_t bytes : options.bytes)
    sizes.push_back({"",
        (bytes + 3) / 4,
        model::Dtype::fp32,
        options.groups.value_or(topology::Groups({ranks}))});
  return sizes;
}

void check(const Size& size, int ranks) {
  if (size.groups.ranks() != ranks)
    throw InputError("--groups {}: {} ranks, but the job has {}",
        size.groups.text(),
        size.groups.ranks(),
        ranks);
  if (size.elements > std::numeric_limits<int>::max())
    throw InputError("{} elements: MPI's own calls count in int, at most {}",
        size.elements,
        std::numeric_limits<int>::max());
}

/// Each once, groups together: the largest shard of every case of the deck that uses all ranks
/// (weights and gradients travel in the compute type, so they are equally long), or the bytes of
/// the command line (in fp32, rounded up). Throws InputError.
std::vector<Size> sizes_of(const CommOptions& options, int ranks) {
  if (ranks < 2)
    throw InputError("one rank has no peer; use mpiexec -n 2 or more");
  std::vector<Size> sizes =
      options.deck.empty() ? of_bytes(options, ranks) : of_deck(options, ranks);
  for (const Size& size : sizes)
    check(size, ranks);
  std::ranges::stable_sort(sizes, {}, [](const Size& size) { return size.groups.sizes(); });
  return sizes;
}

constexpr std::array titles = {"groups",
    "where",
    "operation",
    "bytes",
    "what",
    "ours, ms",
    "best, ms",
    "GB/s",
    "raw, ms",
    "best, ms",
    "GB/s",
    "ours / raw",
    "of the best"};
using Row = std::array<std::string, titles.size()>;

double best(const std::vector<double>& values) {
  return *std::ranges::min_element(values);
}

std::string rate(const Measured& m, double seconds) {
  return fmt::format("{:.2f}", static_cast<double>(m.size.bytes()) / seconds / 1e9);
}

std::string ms(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e3);
}

Row row_of(const Measured& m) {
  Row row = {m.size.groups.text(),
      m.scope,
      std::string(name_of(m.operation)),
      fmt::format("{}", m.size.bytes()),
      m.size.what,
      ms(median(m.ours)),
      ms(best(m.ours)),
      rate(m, median(m.ours))};
  std::fill(row.begin() + 8, row.end(), "-");
  if (m.raw.empty())
    return row;
  const std::array more = {ms(median(m.raw)),
      ms(best(m.raw)),
      rate(m, median(m.raw)),
      fmt::format("{:.2f}", median(m.ours) / median(m.raw)),
      fmt::format("{:.2f}", best(m.ours) / best(m.raw))};
  std::ranges::copy(more, row.begin() + 8);
  return row;
}

std::string plain_table(const std::vector<Measured>& results) {
  std::vector<Row> rows(1);
  std::ranges::copy(titles, rows.front().begin());
  for (const Measured& m : results)
    rows.push_back(row_of(m));
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const auto longest =
          std::ranges::max(rows, {}, [c](const Row& r) { return r[c].size(); })[c].size();
      line += fmt::format("{:<{}}  ", row[c], longest);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string markdown_table(const std::vector<Measured>& results) {
  std::string text = fmt::format("| {} |\n|", fmt::join(titles, " | "));
  for (std::size_t c = 0; c < titles.size(); ++c)
    text += "---|";
  for (const Measured& m : results)
    text += fmt::format("\n| {} |", fmt::join(row_of(m), " | "));
  return text + "\n";
}

/// As a run waits: the compute thread of a rank and the one that communicates want a core each.
/// While the calls of this benchmark wait nothing computes, so with a core for each rank they give
/// way for some milliseconds, as long as the longest messages take inside a node, before
/// they sleep.
comm::WaitPolicy waiting() {
  const topology::Placement place = comm::mpi::detect_placement(MPI_COMM_WORLD);
  const int ranks = place.nodes.size(place.node);
  comm::WaitPolicy policy = comm::wait_policy(place.node_cores, 2 * ranks);
  if (place.node_cores >= ranks)
    policy.eager = std::chrono::milliseconds(20);
  return policy;
}

std::vector<Measured> measure_all(const CommOptions& options, int ranks) {
  const comm::WaitPolicy policy = waiting();
  std::vector<Measured> results;
  for (const Size& size : sizes_of(options, ranks)) {
    const Scopes scopes = scopes_of(size.groups);
    const std::unique_ptr<Backend> ours = make_ours(options.transport, scopes, policy);
    const std::unique_ptr<Backend> raw = make_raw(ours->name(), scopes);
    for (Measured& m : measure(size, scopes, *ours, raw.get(), options))
      results.push_back(std::move(m));
  }
  return results;
}

void print_results(const CommOptions& options, const std::vector<Measured>& results) {
  fmt::print("{}: transport {} beside {}, {} rounds in turn{}\n\n{}",
      comm::mpi::library_version(),
      results.front().backend,
      results.front().raw.empty() ? "nothing" : results.front().raw_backend,
      options.rounds,
      options.verify ? ", contents verified" : "",
      plain_table(results));
  if (options.markdown.empty())
    return;
  std::ofstream file(options.markdown);
  if (!(file << markdown_table(results) << std::flush))
    throw InputError("{} cannot be written", options.markdown);
}

int run(int argc, char** argv, int rank, int ranks) {
  CommOptions options;
  if (const std::string help = read_options(argc, argv, options); !help.empty()) {
    if (rank == 0)
      fmt::print("{}", help);
    return 0;
  }
  const std::vector<Measured> results = measure_all(options, ranks);
  if (rank == 0)
    print_results(options, results);
  return 0;
}

/// Every rank has come here with the same error; one tells.
int print_error(int rank, const std::exception& error, int code) {
  if (rank == 0)
    fmt::print(stderr, "minitaw_comm: {}\n", error.what());
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
      return bench::print_error(mpi.rank(), error, 2);
    } catch (const bench::Wrong& error) {
      return bench::print_error(mpi.rank(), error, 1);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_comm: {}\n", error.what());
    return 1;
  }
}
