// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/screen/probe.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include "case/result.hpp"
#include "instruments/links/messages.hpp"
#include "kernels/kernels.hpp"

namespace minitaw::screen {
namespace {
using comm::mpi::check, schedule::Kind;
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
constexpr int pings = 20;
constexpr int slices = 5;  // of a measurement inside a node
constexpr std::size_t first_message = 256 << 10;

class MpiProbe final : public Probe {
public:
  MpiProbe(MPI_Comm world,
      const topology::Placement& place,
      std::span<const topology::RankPlace> ranks,
      ProbeOptions options,
      std::unique_ptr<Instruments> with)
      : options_(std::move(options)),
        instruments_(std::move(with)),
        kernels_(instruments_->kernels()),
        machine_{place.nodes, options_.adapters},
        ranks_(ranks.begin(), ranks.end()),
        rank_(comm::mpi::rank_in(world)),
        node_(place.node),
        local_(place.local_rank) {
    check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
    at_once_ = options_.one_machine || options_.shared_devices ? 1
               : kernels::on_host ? std::max(1, place.node_cores / ranks_[rank_].threads)
                                  : std::ranges::max(place.nodes.sizes());
  }

  [[nodiscard]] const Machine& machine() const override { return machine_; }

  [[nodiscard]] std::vector<Quantity> quantities() const override {
    const double jitter = 0.5;  // of latencies: twice the usual one
    const double copies =
        0.2;  // where memory comes to lie makes more difference than between kernels
    std::vector<Quantity> all;
    for (const Kernel& kernel : kernels_)
      all.push_back({kernel.name, kernel.units});
    const auto add = [&](std::initializer_list<Quantity> more) { all.insert(all.end(), more); };
    if (has_pairs_inside())
      add({{"rate inside the node", "B/s", Partner::inside, copies},
          {"all-gather in the group", "B/s", Partner::group, copies},
          {"reduce-scatter in the group", "B/s", Partner::group, copies}});
    const Quantity rate{"rate between nodes", "B/s", Partner::node};
    if (machine_.nodes.count() > 1)
      add({rate, {"latency between nodes", "s", Partner::node, jitter}});
    if (machine_.nodes.count() > 1 && machine_.adapters > 1) {
      add({rate});
      all.back().name += ", all adapters at once";
    }
    add({{"cores taken by others", "1"}});
    return all;
  }

  std::vector<std::vector<double>> round() override {
    rows_.clear();
    const rates::CoreUse before = instruments_->core_use();
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
  /// The share of this rank's cores that was taken by others than ranks of the job.
  void measure_load(const rates::CoreUse& before) {
    const rates::CoreUse mine = instruments_->core_use() - before;
    std::vector<rates::CoreUse> all(ranks_.size());
    check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, own_.comm),
        "MPI_Allgather");
    const double share = rates::share_of_others(ranks_, all, rank_);
    begin(Partner::none)[0] = std::isnan(share) ? nothing : std::max(0.0, share);
  }

  [[nodiscard]] bool has_pairs_inside() const {
    return std::ranges::max(machine_.nodes.sizes()) > 1;
  }

  /// All ranks come here before the next stage begins.
  void next(const std::string& stage) {
    options_.done();
    (void)largest(0);
    options_.next(stage);
  }

  /// The next quantity of this round; its values are filled in later.
  std::vector<double>& begin(Partner partner) {
    return rows_.emplace_back(machine_.partners(partner), nothing);
  }

  void measure_kernels() {
    std::vector<double> rates;
    const int turn = (options_.one_machine ? rank_ : local_) / at_once_;
    const int turns =
        1 + static_cast<int>(largest(turn));  // nodes may differ in ranks, cores and threads
    for (int t = 0; t < turns; ++t) {
      next(fmt::format("kernels, turn {}", t + 1));
      if (t == turn)
        rates = list_of(kernels_, [&](const Kernel& kernel) { return rate_of(kernel.make()); });
    }
    for (const double rate : rates)
      begin(Partner::none)[0] = rate;
  }

  /// Units/s of `work`, over the time of a measurement; once before, to warm up.
  double rate_of(const Work& work) {
    work.once();
    const double begin = instruments_->now();
    int count = 0;
    double elapsed = 0;
    for (; elapsed < options_.seconds; elapsed = instruments_->now() - begin, ++count)
      work.once();
    return work.amount * count / elapsed;
  }

  /// The same of work that ranks do together: as often as the slowest can in a slice of the time.
  /// Without: nothing.
  double rate_together(const Work& work) {
    const auto timed = [&](int count) {
      work.once();  // all begin when the last one is here
      const double begin = instruments_->now();
      for (int i = 0; i < count; ++i)
        work.once();
      return instruments_->now() - begin;
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

  /// The best of several slices, apart in time: cores that ranks share have slow moments, a slow
  /// path no fast ones.
  void measure_inside() {
    std::vector<double> rates(machine_.partners(Partner::inside), nothing);
    const int size = machine_.nodes.size(node_);
    const auto keep = [](double& best, double rate) { best = std::fmax(best, rate); };
    double gathers = nothing, scatters = nothing;
    for (int slice = 0; slice < slices; ++slice) {
      for (const auto& pairs : tournament(static_cast<int>(rates.size())))
        node_by_node("links inside the nodes", [&](bool here) {
          int partner = -1;
          for (const auto& [a, b] : pairs)
            if (here && std::max(a, b) < size && (a == local_ || b == local_))
              partner = a == local_ ? b : a;
          const double rate = rate_together(
              partner < 0 ? Work{} : instruments_->exchange(machine_.nodes.rank(node_, partner)));
          if (partner >= 0)
            keep(rates[partner], rate);
        });
      for (const auto& [kind, best] :
          {std::pair(Kind::all_gather, &gathers), std::pair(Kind::reduce_scatter, &scatters)})
        node_by_node(fmt::format("{} of the groups", name_of(kind)), [&](bool here) {
          keep(*best, rate_together(here && size > 1 ? instruments_->collect(kind) : Work{}));
        });
    }
    begin(Partner::inside) = rates;
    begin(Partner::none)[0] = gathers;
    begin(Partner::none)[0] = scatters;
  }

  // Between nodes, by MPI from host memory.

  void measure_between() {
    const auto nodes = static_cast<std::size_t>(machine_.nodes.count());
    std::vector<double> rates(nodes, nothing), latencies = rates, together = rates;
    if (messages_ == 0)
      choose_messages();
    const auto rounds = tournament(machine_.nodes.count());
    for (std::size_t r = 0; r < rounds.size(); ++r)
      for (int adapter = 0; adapter <= machine_.adapters; ++adapter) {
        const bool all = adapter == machine_.adapters;
        if (all && machine_.adapters == 1)
          continue;
        next(fmt::format("links between nodes, pairs {} of {}", r + 1, rounds.size()));
        const auto [node, peer] = opponent(rounds[r], adapter);
        if (peer < 0)
          continue;
        if (!all)
          latencies[node] = latency(peer);
        // The better half of the time, for the same reason as inside a node.
        for (int half = 0; half < 2; ++half) {
          double& best = (all ? together : rates)[node];
          best = std::fmax(best, rate(peer, messages_, message_bytes_));
        }
      }
    begin(Partner::node) = rates;
    begin(Partner::node) = latencies;
    if (machine_.adapters > 1)
      begin(Partner::node) = together;
  }

  /// The node and the rank that this rank exchanges with; -1: none. `adapter`: all, if there is no
  /// such.
  [[nodiscard]] std::pair<int, int> opponent(
      const std::vector<std::pair<int, int>>& pairs, int adapter) const {
    const int mine = machine_.adapter_of(rank_);
    if ((adapter != mine && adapter != machine_.adapters) || machine_.driver(node_, mine) != rank_)
      return {-1, -1};
    for (const auto& [a, b] : pairs)
      if (a == node_ || b == node_)
        return {a + b - node_, machine_.driver(a + b - node_, mine)};
    return {-1, -1};
  }

  /// So many that a usual link takes the time of a measurement; the same on all ranks.
  void choose_messages() {
    next("links between nodes, first messages");
    double mine = nothing;
    if (const auto [node, peer] =
            opponent(tournament(machine_.nodes.count()).front(), machine_.adapters);
        peer >= 0) {
      (void)rate(peer, 1, first_message);  // connects
      mine = rate(peer, 1, first_message);
    }
    std::vector<double> all(machine_.nodes.ranks());
    check(
        MPI_Allgather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, own_.comm), "MPI_Allgather");
    std::erase_if(all, [](double value) { return std::isnan(value); });
    const double bytes = std::max<double>(first_message, median(all) * options_.link_seconds / 2);
    messages_ = links::times_in(std::ceil(bytes / links::message_bytes), 1);
    message_bytes_ = std::min(links::message_bytes, static_cast<std::size_t>(bytes / messages_));
  }

  /// Seconds: half of the fastest round, which both sides know.
  double latency(int peer) {
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < pings; ++i)
      fastest = std::min(fastest, instruments_->round_trip(peer) / 2);
    return fastest;
  }

  /// Bytes/s of what the peer sends while as much goes the other way, until the last byte is here.
  double rate(int peer, int messages, std::size_t size) {
    (void)instruments_->round_trip(peer);  // both are here
    return static_cast<double>(size) * messages / instruments_->messages(peer, messages, size);
  }

  /// [quantity][rank][partner]
  std::vector<std::vector<double>> gather() {
    std::vector<std::vector<double>> all;
    for (const std::vector<double>& mine : rows_) {
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
  std::unique_ptr<Instruments> instruments_;
  std::vector<Kernel> kernels_;
  Machine machine_;
  std::vector<topology::RankPlace> ranks_;
  int rank_, node_, local_;
  comm::mpi::OwnComm own_;
  int at_once_ = 1;   ///< ranks of a node that may compute at the same time
  int messages_ = 0;  ///< of a measurement between nodes
  std::size_t message_bytes_ = 0;
  std::vector<std::vector<double>>
      rows_;  ///< of this round: for each quantity the values of this rank
};
}  // namespace

std::unique_ptr<Probe> make_probe(MPI_Comm world,
    const topology::Placement& place,
    std::span<const topology::RankPlace> ranks,
    ProbeOptions options,
    std::unique_ptr<Instruments> instruments) {
  return std::make_unique<MpiProbe>(
      world, place, ranks, std::move(options), std::move(instruments));
}
}  // namespace minitaw::screen
