// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/screen/probe.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include "case/result.hpp"
#include "instruments/links/messages.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::screen {
namespace {
using comm::mpi::check, schedule::Kind;
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

// docs/screen.md, "What it measures".

/// Round trips of which a latency is the fastest.
constexpr int pings = 20;
/// Of the time of a measurement, the best of which counts: inside a node, and between nodes. Cores
/// that ranks share have slow moments, a slow path no fast ones.
constexpr int slices = 5, halves = 2;
/// Bytes of the message that tells how many fit in the time of a measurement.
constexpr std::size_t first_message = 256 << 10;
/// Losses that are worth a word: where memory comes to lie makes more difference than between
/// kernels, and of latencies twice the usual one.
constexpr double least_copy = 0.2, least_latency = 0.5;

constexpr const char *rate_inside = "rate inside the node",
                     *gather_inside = "all-gather in the group",
                     *scatter_inside = "reduce-scatter in the group",
                     *rate_between = "rate between nodes",
                     *latency_between = "latency between nodes",
                     *rate_together = "rate between nodes, all adapters at once",
                     *load = "cores taken by others";

class MpiProbe final : public Probe {
public:
  MpiProbe(MPI_Comm world,
      const topology::Placement& place,
      std::span<const topology::RankPlace> ranks,
      ProbeOptions options,
      std::unique_ptr<Workbench> with)
      : options_(std::move(options)),
        workbench_(std::move(with)),
        kernels_(workbench_->kernels()),
        machine_{place.nodes, options_.adapters},
        ranks_(ranks.begin(), ranks.end()),
        rank_(comm::mpi::rank_in(world)),
        node_(place.node),
        local_(place.local_rank) {
    check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
    at_once_ = options_.one_machine || options_.shared_devices ? 1
               : kernels::on_host ? std::max(1, place.node_cores / ranks_[rank_].threads)
                                  : std::ranges::max(place.nodes.sizes());
    list_quantities();
  }

  const Machine& machine() const override { return machine_; }

  std::vector<Quantity> quantities() const override { return quantities_; }

  std::vector<std::vector<double>> round() override {
    for (const Quantity& q : quantities_)
      values_[q.name].assign(machine_.partners(q.partner), nothing);
    const rates::CoreUse before = workbench_->core_use();
    measure_kernels();
    if (has_pairs_inside())
      measure_inside();
    if (machine_.nodes.count() > 1)
      measure_between();
    next("gathering");
    measure_load(before);
    return gather();
  }

private:
  void list_quantities() {
    const auto add = [&](std::initializer_list<Quantity> more) {
      quantities_.insert(quantities_.end(), more);
    };
    for (const Kernel& kernel : kernels_)
      add({{kernel.name, kernel.units}});
    if (has_pairs_inside())
      add({{rate_inside, "B/s", Partner::inside, least_copy},
          {gather_inside, "B/s", Partner::group, least_copy},
          {scatter_inside, "B/s", Partner::group, least_copy}});
    if (machine_.nodes.count() > 1)
      add({{rate_between, "B/s", Partner::node},
          {latency_between, "s", Partner::node, least_latency}});
    if (machine_.nodes.count() > 1 && machine_.adapters > 1)
      add({{rate_together, "B/s", Partner::node}});
    add({{load, "1"}});
  }

  /// Leaves the largest value that this rank has measured in this round; nothing changes nothing.
  void keep(const std::string& quantity, double value, int partner = 0) {
    double& best = values_.at(quantity)[partner];
    best = std::fmax(best, value);
  }

  /// The share of this rank's cores that was taken by others than ranks of the job.
  void measure_load(const rates::CoreUse& before) {
    const rates::CoreUse mine = workbench_->core_use() - before;
    const double share = rates::share_of_others(ranks_, links::all_gather(mine, own_.comm), rank_);
    keep(load, std::isnan(share) ? nothing : std::max(0.0, share));
  }

  bool has_pairs_inside() const { return std::ranges::max(machine_.nodes.sizes()) > 1; }

  /// All ranks come here before the next stage begins.
  void next(const std::string& stage) {
    options_.done();
    (void)largest(0);
    options_.next(stage);
  }

  void measure_kernels() {
    const int turn = (options_.one_machine ? rank_ : local_) / at_once_;
    // Nodes may differ in ranks, cores and threads.
    const int turns = 1 + static_cast<int>(largest(turn));
    for (int t = 0; t < turns; ++t) {
      next(fmt::format("kernels, turn {}", t + 1));
      for (const Kernel& kernel : kernels_)
        if (t == turn)
          keep(kernel.name, rate_of(kernel.make()));
    }
  }

  /// Units/s of `work`, over the time of a measurement; once before, to warm up.
  double rate_of(const Work& work) {
    work.once();
    const double begin = workbench_->now();
    int count = 0;
    double elapsed = 0;
    for (; elapsed < options_.seconds; elapsed = workbench_->now() - begin, ++count)
      work.once();
    return work.amount * count / elapsed;
  }

  /// The same of work that ranks do together: as often as the slowest can in a slice of the time.
  /// Without: nothing.
  double rate_of_all(const Work& work) {
    const auto timed = [&](int count) {
      work.once();  // all begin when the last one is here
      const double begin = workbench_->now();
      for (int i = 0; i < count; ++i)
        work.once();
      return workbench_->now() - begin;
    };
    const double first = largest(work.once ? timed(1) : 0);
    const int count = links::times_in(options_.seconds / slices, first);
    return work.once ? work.amount * count / timed(count) : nothing;
  }

  double largest(double mine) const { return links::largest(mine, own_.comm); }

  /// Nodes that share cores measure one after the other.
  template <class Work>
  void node_by_node(const std::string& stage, const Work& work) {
    const int turns = options_.one_machine ? machine_.nodes.count() : 1;
    for (int turn = 0; turn < turns; ++turn) {
      next(stage);
      work(turns == 1 || turn == node_);
    }
  }

  void measure_inside() {
    const int size = machine_.nodes.size(node_);
    for (int slice = 0; slice < slices; ++slice) {
      for (const auto& pairs : tournament(machine_.partners(Partner::inside)))
        node_by_node("links inside the nodes", [&](bool here) {
          const int partner = here ? partner_in(pairs, local_) : -1;
          const bool exchanges = partner >= 0 && partner < size;
          const double rate = rate_of_all(
              exchanges ? workbench_->exchange(machine_.nodes.rank(node_, partner)) : Work{});
          keep(rate_inside, rate, std::max(partner, 0));
        });
      for (const auto& [kind, quantity] :
          {std::pair(Kind::all_gather, gather_inside), {Kind::reduce_scatter, scatter_inside}})
        node_by_node(fmt::format("{} of the groups", name_of(kind)), [&](bool here) {
          keep(quantity, rate_of_all(here && size > 1 ? workbench_->collect(kind) : Work{}));
        });
    }
  }

  /// Whom this one meets; -1: no one.
  static int partner_in(const std::vector<std::pair<int, int>>& pairs, int one) {
    for (const auto& [a, b] : pairs)
      if (a == one || b == one)
        return a + b - one;
    return -1;
  }

  // Between nodes, by MPI from host memory.

  void measure_between() {
    if (messages_ == 0)
      choose_messages();
    const auto steps = tournament(machine_.nodes.count());
    for (std::size_t s = 0; s < steps.size(); ++s) {
      const auto begin = [&] {
        next(fmt::format("links between nodes, pairs {} of {}", s + 1, steps.size()));
      };
      const auto [node, peer] = opponent(steps[s]);
      for (int adapter = 0; adapter < machine_.adapters; ++adapter) {
        begin();
        if (peer < 0 || adapter != machine_.adapter_of(rank_))
          continue;
        keep(latency_between, latency(peer), node);
        keep_rates(rate_between, peer, node);
      }
      if (machine_.adapters == 1)
        continue;
      begin();
      if (peer >= 0)
        keep_rates(rate_together, peer, node);
    }
  }

  void keep_rates(const std::string& quantity, int peer, int node) {
    for (int half = 0; half < halves; ++half)
      keep(quantity, rate(peer, messages_, message_bytes_), node);
  }

  /// The node and the rank that this rank exchanges with; -1: none, or it drives no adapter.
  std::pair<int, int> opponent(const std::vector<std::pair<int, int>>& pairs) const {
    const int adapter = machine_.adapter_of(rank_), node = partner_in(pairs, node_);
    if (node < 0 || machine_.driver(node_, adapter) != rank_)
      return {-1, -1};
    return {node, machine_.driver(node, adapter)};
  }

  /// So many that a usual link takes the time of a measurement; the same on all ranks.
  void choose_messages() {
    next("links between nodes, first messages");
    double mine = nothing;
    const auto [node, peer] = opponent(tournament(machine_.nodes.count()).front());
    if (peer >= 0) {
      (void)rate(peer, 1, first_message);  // connects
      mine = rate(peer, 1, first_message);
    }
    std::vector<double> all = links::all_gather(mine, own_.comm);
    std::erase_if(all, [](double value) { return std::isnan(value); });
    const double bytes =
        std::max<double>(first_message, median(all) * options_.link_seconds / halves);
    messages_ = links::times_in(std::ceil(bytes / links::message_bytes), 1);
    message_bytes_ = std::min(links::message_bytes, static_cast<std::size_t>(bytes / messages_));
  }

  /// Seconds: half of the fastest round, which both sides know.
  double latency(int peer) {
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < pings; ++i)
      fastest = std::min(fastest, workbench_->round_trip(peer) / 2);
    return fastest;
  }

  /// Bytes/s of what the peer sends while as much goes the other way, until the last byte is here.
  double rate(int peer, int messages, std::size_t size) {
    (void)workbench_->round_trip(peer);  // both are here
    return size * messages / workbench_->messages(peer, messages, size);
  }

  /// [quantity][rank][partner]
  std::vector<std::vector<double>> gather() {
    std::vector<std::vector<double>> all;
    for (const Quantity& quantity : quantities_) {
      const std::vector<double>& mine = values_.at(quantity.name);
      const int count = static_cast<int>(mine.size());
      std::vector<double>& values =
          all.emplace_back(rank_ == 0 ? mine.size() * machine_.nodes.ranks() : 0);
      check(MPI_Gather(
                mine.data(), count, MPI_DOUBLE, values.data(), count, MPI_DOUBLE, 0, own_.comm),
          "MPI_Gather");
    }
    return all;
  }

  ProbeOptions options_;
  std::unique_ptr<Workbench> workbench_;
  std::vector<Kernel> kernels_;
  Machine machine_;
  std::vector<topology::RankPlace> ranks_;
  int rank_, node_, local_;
  comm::mpi::OwnComm own_;
  int at_once_ = 1;   ///< ranks of a node that may compute at the same time
  int messages_ = 0;  ///< of a measurement between nodes
  std::size_t message_bytes_ = 0;
  std::vector<Quantity> quantities_;
  /// Of this rank in this round, by the name of the quantity: [partner].
  std::map<std::string, std::vector<double>> values_;
};
}  // namespace

std::unique_ptr<Probe> make_probe(MPI_Comm world,
    const topology::Placement& place,
    std::span<const topology::RankPlace> ranks,
    ProbeOptions options,
    std::unique_ptr<Workbench> workbench) {
  return std::make_unique<MpiProbe>(world, place, ranks, std::move(options), std::move(workbench));
}
}  // namespace minitaw::screen
