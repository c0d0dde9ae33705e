// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/screen/probe.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include "base/statistics.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::screen {
namespace {
using comm::mpi::check_mpi;

// docs/screen.md, "What it measures".

/// Round trips of which a latency is the fastest.
constexpr int pings = 20;
/// Of the time of a measurement, the best of which counts: inside a node, and between nodes. Cores
/// that ranks share have slow moments, a slow path no fast ones.
constexpr int slices = 5, halves = 2;
/// Bytes of the message that tells how many fit in the time of a measurement, of the largest one
/// that is used then, and the most of these.
constexpr std::size_t first_message = 256 << 10, largest_message = 1 << 20;
constexpr int most_messages = 4096;

constexpr const char *rate_inside = "rate inside the node", *rate_between = "rate between nodes",
                     *latency_between = "latency between nodes",
                     *rate_together = "rate between nodes, all adapters at once",
                     *load = "cores taken by others";

/// Units/s of `work`, over this time; once before, to warm up.
double rate_of(Workbench& bench, const Work& work, double seconds) {
  work.once();
  const double begin = bench.now();
  int count = 0;
  double elapsed = 0;
  for (; elapsed < seconds; elapsed = bench.now() - begin, ++count)
    work.once();
  return work.amount * count / elapsed;
}

/// Seconds: half of the fastest round trip, which both sides know.
double latency(Workbench& bench, int peer) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < pings; ++i)
    fastest = std::min(fastest, bench.round_trip(peer) / 2);
  return fastest;
}

/// Bytes/s of what the peer sends while as much goes the other way, until the last byte is here.
double rate(Workbench& bench, int peer, int messages, std::size_t size) {
  (void)bench.round_trip(peer);  // both are here
  return size * messages / bench.messages(peer, messages, size);
}
}  // namespace

int steps_of_tournament(int n) {
  return n - 1 + n % 2;
}

int opponent_of(int one, int step, int n) {
  const int last = steps_of_tournament(n);  // all others sit in a circle, which turns
  if (one == last)
    return step;
  const int other = one == step ? last : (2 * step + last - one) % last;
  return other < n ? other : -1;  // of an odd number one has a pause
}

Probe::Probe(MPI_Comm world,
    const topology::Placement& place,
    std::span<const topology::RankPlace> ranks,
    ProbeOptions options,
    std::unique_ptr<Workbench> workbench)
    : options_(std::move(options)),
      workbench_(std::move(workbench)),
      kernels_(workbench_->kernels()),
      wiring_{place.nodes, options_.adapters},
      ranks_(ranks.begin(), ranks.end()),
      rank_(comm::mpi::rank_in(world)),
      node_(place.node),
      local_(place.local_rank) {
  check_mpi(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
  at_once_ = options_.one_machine || options_.shared_devices ? 1
             : kernels::on_host ? std::max(1, place.node_cores / options_.threads)
                                : wiring_.partners(Partner::inside);
  for (const Kernel& kernel : kernels_)
    quantities_.push_back({kernel.name, kernel.units});
  if (has_pairs_inside())
    quantities_.push_back({rate_inside, "B/s", Partner::inside});
  if (wiring_.nodes.count() > 1) {
    quantities_.push_back({rate_between, "B/s", Partner::node});
    quantities_.push_back({latency_between, "s", Partner::node});
    if (wiring_.adapters > 1)
      quantities_.push_back({rate_together, "B/s", Partner::node});
  }
  quantities_.push_back({load, "1"});
}

std::vector<std::vector<double>> Probe::round() {
  for (const Quantity& q : quantities_)
    values_[q.name].assign(wiring_.partners(q.partner), nothing);
  const rates::CoreUse before = workbench_->core_use();
  measure_kernels();
  if (has_pairs_inside())
    measure_inside();
  if (wiring_.nodes.count() > 1)
    measure_between();
  next("gathering");
  const rates::CoreUse mine = workbench_->core_use() - before;
  const auto uses = comm::mpi::gather(mine, own_.comm, "gathering loads of cores");
  std::vector<std::vector<double>> all;
  for (const Quantity& q : quantities_) {
    const auto of_ranks =
        comm::mpi::gather_lists(values_.at(q.name), own_.comm, "gathering values of ranks");
    all.push_back(list_of(of_ranks | std::views::join));
  }
  for (const int rank : indices(uses)) {
    const double throttled = topology::throttled_share(ranks_[rank]);
    const double share = throttled > 0 ? throttled : rates::share_of_others(ranks_, uses, rank);
    all.back()[rank] = std::isnan(share) ? nothing : std::clamp(share, 0.0, 1.0);  // of `load`
  }
  return all;
}

/// All ranks come here before the next stage begins.
void Probe::next(const std::string& stage) {
  options_.done();
  (void)largest(0);
  options_.next(stage);
}

/// Leaves the largest value that this rank has measured in this round; nothing changes nothing.
void Probe::keep(const std::string& quantity, double value, int partner) {
  double& best = values_.at(quantity)[partner];
  best = std::fmax(best, value);
}

void Probe::measure_kernels() {
  const int turn = (options_.one_machine ? rank_ : local_) / at_once_;
  // Nodes may differ in ranks, cores and threads.
  const int turns = 1 + largest(turn);
  for (int t = 0; t < turns; ++t) {
    next(fmt::format("kernels, turn {}", t + 1));
    for (const Kernel& kernel : kernels_)
      if (t == turn)
        keep(kernel.name, rate_of(*workbench_, kernel.make(), options_.seconds));
  }
}

/// Nodes that share cores measure one after the other.
void Probe::measure_inside() {
  const int turns = options_.one_machine ? wiring_.nodes.count() : 1;
  const int ranks = wiring_.partners(Partner::inside);
  for (int slice = 0; slice < slices; ++slice)
    for (int step = 0; step < steps_of_tournament(ranks); ++step)
      for (int turn = 0; turn < turns; ++turn) {
        next("links inside the nodes");
        const bool here = turns == 1 || turn == node_;
        const int partner = here ? opponent_of(local_, step, ranks) : -1;
        const bool exchanges = partner >= 0 && partner < wiring_.nodes.size(node_);
        const double rate = rate_of_all(
            exchanges ? workbench_->exchange(wiring_.nodes.rank(node_, partner)) : Work{});
        keep(rate_inside, rate, std::max(partner, 0));
      }
}

/// Units/s of work that ranks do together, as often as the slowest can in a slice of the time.
/// Without work: nothing.
double Probe::rate_of_all(const Work& work) {
  const auto timed = [&](int count) {
    work.once();  // all begin when the last one is here
    const double begin = workbench_->now();
    for (int i = 0; i < count; ++i)
      work.once();
    return workbench_->now() - begin;
  };
  const double first = largest(work.once ? timed(1) : 0);
  const int count = std::clamp<double>(options_.seconds / slices / first, 1, most_messages);
  return work.once ? work.amount * count / timed(count) : nothing;
}

/// By MPI from host memory.
void Probe::measure_between() {
  if (messages_ == 0)
    choose_messages();
  const int steps = steps_of_tournament(wiring_.nodes.count());
  for (int step = 0; step < steps; ++step) {
    const std::string stage = fmt::format("links between nodes, pairs {} of {}", step + 1, steps);
    const auto [node, peer] = opponent(step);
    const auto keep_rates = [&](const char* quantity) {
      for (int half = 0; half < halves; ++half)
        keep(quantity, rate(*workbench_, peer, messages_, message_bytes_), node);
    };
    for (int adapter = 0; adapter < wiring_.adapters; ++adapter) {
      next(stage);
      if (peer < 0 || adapter != wiring_.adapter_of(rank_))
        continue;
      keep(latency_between, latency(*workbench_, peer), node);
      keep_rates(rate_between);
    }
    if (wiring_.adapters == 1)
      continue;
    next(stage);
    if (peer >= 0)
      keep_rates(rate_together);
  }
}

/// So many that a usual link takes the time of a measurement; the same on all ranks.
void Probe::choose_messages() {
  next("links between nodes, first messages");
  double mine = nothing;
  if (const int peer = opponent(0).second; peer >= 0) {
    (void)rate(*workbench_, peer, 1, first_message);  // connects
    mine = rate(*workbench_, peer, 1, first_message);
  }
  std::vector<double> all = comm::mpi::all_gather(mine, own_.comm, "gathering rates of ranks");
  std::erase_if(all, [](double value) { return std::isnan(value); });
  const double bytes =
      std::max<double>(first_message, median(all) * options_.link_seconds / halves);
  messages_ = std::clamp<double>(std::ceil(bytes / largest_message), 1, most_messages);
  message_bytes_ = std::min<std::size_t>(largest_message, bytes / messages_);
}

/// The node and the rank that this rank exchanges with; -1: none, or it drives no adapter.
std::pair<int, int> Probe::opponent(int step) const {
  const int adapter = wiring_.adapter_of(rank_);
  const int node = opponent_of(node_, step, wiring_.nodes.count());
  if (node < 0 || wiring_.driver(node_, adapter) != rank_)
    return {-1, -1};
  return {node, wiring_.driver(node, adapter)};
}
}  // namespace minitaw::screen
