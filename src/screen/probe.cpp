// SPDX-License-Identifier: BSD-3-Clause
#include "screen/probe.hpp"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include "base/philox.hpp"
#include "case/result.hpp"
#include "engine/make_transport.hpp"
#include "engine/queue.hpp"

namespace minitaw::screen {
namespace {
using comm::mpi::check, comm::mpi::measuring, schedule::Kind, schedule::Payload;
using Bytes = Kokkos::View<std::byte*, kernels::MemorySpace>;
constexpr double nothing = std::numeric_limits<double>::quiet_NaN();
constexpr int pings = 20, most_messages = 4096;
constexpr int slices = 5;  // of a measurement inside a node
constexpr std::size_t largest_message = 1 << 20, first_message = 256 << 10;
constexpr std::chrono::microseconds nap{500};  // of ranks that wait for those that measure

/// Repetitions of `work` in a second, all finished, over so many seconds; once before, to warm up.
template <class Work> double per_second(const kernels::ExecutionSpace& exec, double seconds, const Work& work) {
  const auto once = [&] {
    work();
    exec.fence("minitaw::screen");
  };
  once();
  const double begin = MPI_Wtime();
  int count = 0;
  double elapsed = 0;
  for (; elapsed < seconds; elapsed = MPI_Wtime() - begin, ++count) once();
  return count / elapsed;
}

struct Triad {
  float* a;
  const float *b, *c;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { a[i] = b[i] + 3.0F * c[i]; }
};

class Kernels {
public:
  explicit Kernels(const model::Shape& shape)
      : shape_(shape), exec_(engine::lane_space(schedule::Lane::compute)), sizes_(model::attention_sizes(shape)) {
    kernels::prepare(exec_);
    model::with_element(shape_.dtype, [&]<class E>(E) { kernels::attention_prepare<E>(exec_, sizes_); });
  }

  /// FLOP/s of the product that widens the MLP.
  [[nodiscard]] double product(double seconds) const {
    const std::int64_t t = shape_.tokens(), h = shape_.hidden, f = 2 * shape_.ffn.front();
    double rate = 0;
    model::with_element(shape_.dtype, [&]<class E>(E) {
      const auto x = make<E>(t, h), w = make<E>(f, h), y = make<E>(t, f);
      rate = per_second(exec_, seconds, [&] { kernels::linear_forward<E>(exec_, y, x, w); });
    });
    return rate * 2.0 * static_cast<double>(t * h * f);
  }

  /// FLOP/s of the forward pass, causal: 2 B S^2 h d.
  [[nodiscard]] double attention(double seconds) const {
    const std::int64_t t = shape_.tokens(), a = shape_.heads * shape_.head_dim();
    double rate = 0;
    model::with_element(shape_.dtype, [&]<class E>(E) {
      const auto qkv = make<E>(t, shape_.qkv()), y = make<E>(t, a);
      const auto lse = make<float>(1, shape_.heads * t);
      rate = per_second(exec_, seconds, [&] {
        kernels::attention_forward<E>(exec_, y, kernels::Vector<float>(lse.data(), lse.extent(1)), qkv, sizes_);
      });
    });
    return rate * 2.0 * static_cast<double>(t * shape_.seq * a);
  }

  /// Bytes/s of a = b + 3 c (STREAM's triad), which fits no cache.
  [[nodiscard]] double triad(double seconds) const {
    const std::int64_t n = kernels::on_host ? 8 << 20 : 64 << 20;
    const Kokkos::View<float*, kernels::MemorySpace> a("a", n), b("b", n), c("c", n);
    const Kokkos::RangePolicy<kernels::ExecutionSpace> all(exec_, 0, n);
    const Triad add{a.data(), b.data(), c.data()};
    return 3.0 * sizeof(float) * static_cast<double>(n) *
           per_second(exec_, seconds, [&] { Kokkos::parallel_for("minitaw::triad", all, add); });
  }

  /// Bytes/s from pinned memory to the device, or back.
  [[nodiscard]] double copy(bool to_device, double seconds) const {
    const std::size_t bytes = 64 << 20;
    const Bytes there("device", bytes);
    const Kokkos::View<std::byte*, kernels::PinnedSpace> here("pinned", bytes);
    return static_cast<double>(bytes) * per_second(exec_, seconds, [&] {
      if (to_device) Kokkos::deep_copy(exec_, there, here);
      else Kokkos::deep_copy(exec_, here, there);
    });
  }
private:
  /// A matrix with its memory. Its values are random: a device draws less power, and runs faster, on zeros.
  template <class E> struct Owned : kernels::Matrix<E> {
    Kokkos::View<E**, Kokkos::LayoutRight, kernels::MemorySpace> memory;
    Owned(const kernels::ExecutionSpace& exec, std::int64_t rows, std::int64_t columns)
        : memory("minitaw::screen", rows, columns) {
      static_cast<kernels::Matrix<E>&>(*this) = memory;
      kernels::uniform<E>(
          exec, kernels::Vector<E>(memory.data(), memory.size()), {}, 0, UniformRow{{}, {}, 0.0F, 1.0F});
    }
  };
  template <class E> [[nodiscard]] Owned<E> make(std::int64_t rows, std::int64_t columns) const {
    return {exec_, rows, columns};
  }

  model::Shape shape_;
  kernels::ExecutionSpace exec_;
  kernels::AttentionSizes sizes_;
};

/// What schedules do inside a node: messages of weights between all ranks, and the collectives of their group.
schedule::Program program_of(const topology::Groups& nodes) {
  schedule::Program program;
  program.schedule = "screen";
  program.groups = nodes;
  program.ranks.resize(nodes.ranks());
  for (int n = 0; n < nodes.count(); ++n) {
    program.communicators.push_back({fmt::format("group{}", n), nodes.members(n)});
    for (const int rank : nodes.members(n)) {
      const auto add = [&](Kind kind, Payload payload, int peer, int communicator) {
        const schedule::Lane lane = schedule::lane_of(kind, payload, true);
        program.ranks[rank].actions.push_back(
            {.kind = kind, .lane = lane, .payload = payload, .peer = peer, .communicator = communicator});
      };
      for (const int peer : nodes.members(n))
        for (const Kind kind : {Kind::send, Kind::recv})
          if (peer != rank) add(kind, Payload::weights, peer, -1);
      if (nodes.size(n) == 1) continue;
      add(Kind::all_gather, Payload::weights, -1, n);
      add(Kind::reduce_scatter, Payload::gradient, -1, n);
    }
  }
  return program;
}

class MpiProbe final : public Probe {
public:
  MpiProbe(MPI_Comm world, const topology::Placement& place, ProbeOptions options)
      : options_(std::move(options)), machine_{place.nodes, options_.adapters}, rank_(comm::mpi::rank_in(world)),
        node_(place.node), local_(place.local_rank), program_(program_of(place.nodes)),
        elements_(model::block_matmul_parameters(options_.shape, 0)), kernels_(options_.shape),
        buffer_("minitaw::screen", 2 * bytes()), staging_("minitaw::staging", 2 * schedule::chunk_bytes) {
    check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
    transport_ = engine::make_transport(
        "auto", {own_.comm, program_, {staging_.data(), staging_.size()}, measuring, options_.shared_devices});
    at_once_ = options_.one_machine || options_.shared_devices ? 1
               : kernels::on_host                              ? std::max(1, place.node_cores / options_.threads)
                                                               : std::ranges::max(place.nodes.sizes());
  }

  [[nodiscard]] const Machine& machine() const override { return machine_; }

  [[nodiscard]] std::vector<Quantity> quantities() const override {
    const double jitter = 0.5;  // of latencies: twice the usual one
    const double copies = 0.2;  // where memory comes to lie makes more difference than between kernels
    std::vector<Quantity> all = {{"matrix product", "FLOP/s"}, {"attention", "FLOP/s"}, {"triad", "B/s"}};
    const auto add = [&](std::initializer_list<Quantity> more) { all.insert(all.end(), more); };
    if (!kernels::on_host) add({{"copy to the device", "B/s"}, {"copy from the device", "B/s"}});
    if (has_pairs_inside())
      add({{"rate inside the node", "B/s", Partner::inside, copies},
          {"all-gather in the group", "B/s", Partner::none, copies, false, true},
          {"reduce-scatter in the group", "B/s", Partner::none, copies, false, true}});
    if (machine_.nodes.count() == 1) return all;
    add({{"rate between nodes", "B/s", Partner::node}, {"latency between nodes", "s", Partner::node, jitter, true}});
    if (machine_.adapters > 1) add({{"rate between nodes, all adapters at once", "B/s", Partner::node}});
    return all;
  }

  std::vector<std::vector<double>> round() override {
    rows_.clear();
    measure_kernels();
    if (has_pairs_inside()) measure_inside();
    if (machine_.nodes.count() > 1) measure_between();
    return gather();
  }
private:
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(elements_) * sizeof(float); }
  [[nodiscard]] bool has_pairs_inside() const { return std::ranges::max(machine_.nodes.sizes()) > 1; }

  /// All ranks come here before the next stage begins.
  void next(const std::string& stage) {
    options_.done();
    (void)largest(0);
    options_.next(stage);
  }

  /// The next quantity of this round; its values are filled in later.
  std::vector<double>& begin(Partner partner) { return rows_.emplace_back(machine_.partners(partner), nothing); }

  void measure_kernels() {
    std::vector<double> rates;
    const int turn = (options_.one_machine ? rank_ : local_) / at_once_;
    const int ranks = options_.one_machine ? machine_.nodes.ranks() : std::ranges::max(machine_.nodes.sizes());
    for (int t = 0; t * at_once_ < ranks; ++t) {
      next(fmt::format("kernels, turn {}", t + 1));
      if (t != turn) continue;
      rates = {
          kernels_.product(options_.seconds), kernels_.attention(options_.seconds), kernels_.triad(options_.seconds)};
      for (const bool to_device : {true, false})
        if (!kernels::on_host) rates.push_back(kernels_.copy(to_device, options_.seconds));
    }
    for (const double rate : rates) begin(Partner::none)[0] = rate;
  }

  // Inside a node, by the transport of the schedules.

  /// Returns when what the transport has put on queues of the device is over too.
  void fence() const {
    for (int l = 0; l < schedule::lanes && transport_->on_stream(); ++l)
      engine::lane_space(static_cast<schedule::Lane>(l)).fence("minitaw::screen");
  }

  void exchange(int peer) {
    const auto start = [&](Kind kind, std::byte* data) {
      constexpr auto payload = Payload::weights;
      return transport_->start(lane_of(kind, payload, true), {kind == Kind::send, peer, payload, data, bytes()});
    };
    const auto in = start(Kind::recv, buffer_.data() + bytes()), out = start(Kind::send, buffer_.data());
    comm::finish({&in, &out}, measuring);  // neither may be waited for alone
    fence();
  }

  void collect(Kind kind) {
    const auto payload = kind == Kind::all_gather ? Payload::weights : Payload::gradient;
    const auto transfer = transport_->start(
        lane_of(kind, payload, true), kind, {node_, -1, payload, model::Dtype::fp32, buffer_.data(), elements_});
    comm::finish({&transfer}, measuring);
    fence();
  }

  /// Bytes/s of `work`, which moves `bytes()` on every rank that takes part, in a slice of a measurement's time.
  template <class Work> double repeated(bool takes_part, const Work& work) {
    const auto timed = [&](int count) {
      if (takes_part) work();  // all begin when the last one is here
      const double begin = MPI_Wtime();
      for (int i = 0; i < count && takes_part; ++i) work();
      return MPI_Wtime() - begin;
    };
    const double first = largest(takes_part ? timed(1) : 0);
    const int count = static_cast<int>(std::clamp(options_.seconds / slices / first, 1.0, 1.0 * most_messages));
    return takes_part ? static_cast<double>(bytes()) * count / timed(count) : nothing;
  }

  double largest(double mine) const { return comm::mpi::largest(mine, own_.comm, nap); }

  /// Nodes that share cores measure one after the other.
  template <class Work> void node_by_node(const std::string& stage, const Work& work) {
    const int turns = options_.one_machine ? machine_.nodes.count() : 1;
    for (int turn = 0; turn < turns; ++turn) {
      next(stage);
      work(turns == 1 || turn == node_);
    }
  }

  /// The best of several slices, apart in time: cores that ranks share have slow moments, a slow path no fast ones.
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
            if (here && std::max(a, b) < size && (a == local_ || b == local_)) partner = a == local_ ? b : a;
          const double rate = repeated(partner >= 0, [&] { exchange(machine_.nodes.rank(node_, partner)); });
          if (partner >= 0) keep(rates[partner], rate);
        });
      for (const auto& [kind, best] :
          {std::pair(Kind::all_gather, &gathers), std::pair(Kind::reduce_scatter, &scatters)})
        node_by_node(fmt::format("{} of the groups", name_of(kind)),
            [&](bool here) { keep(*best, repeated(here && size > 1, [&] { collect(kind); })); });
    }
    begin(Partner::inside) = rates;
    begin(Partner::none)[0] = gathers;
    begin(Partner::none)[0] = scatters;
  }

  // Between nodes, by MPI from host memory.

  void measure_between() {
    const auto nodes = static_cast<std::size_t>(machine_.nodes.count());
    std::vector<double> rates(nodes, nothing), latencies = rates, together = rates;
    if (messages_ == 0) choose_messages();
    const auto rounds = tournament(machine_.nodes.count());
    for (std::size_t r = 0; r < rounds.size(); ++r)
      for (int adapter = 0; adapter <= machine_.adapters; ++adapter) {
        const bool all = adapter == machine_.adapters;
        if (all && machine_.adapters == 1) continue;
        next(fmt::format("links between nodes, pairs {} of {}", r + 1, rounds.size()));
        const auto [node, peer] = opponent(rounds[r], adapter);
        if (peer < 0) continue;
        if (!all) latencies[node] = latency(peer);
        // The better half of the time, for the same reason as inside a node.
        for (int half = 0; half < 2; ++half) {
          double& best = (all ? together : rates)[node];
          best = std::fmax(best, rate(peer, messages_, message_bytes_));
        }
      }
    begin(Partner::node) = rates;
    begin(Partner::node) = latencies;
    if (machine_.adapters > 1) begin(Partner::node) = together;
  }

  /// The node and the rank that this rank exchanges with; -1: none. `adapter`: all, if there is no such.
  [[nodiscard]] std::pair<int, int> opponent(const std::vector<std::pair<int, int>>& pairs, int adapter) const {
    const int mine = machine_.adapter_of(rank_);
    if ((adapter != mine && adapter != machine_.adapters) || machine_.driver(node_, mine) != rank_) return {-1, -1};
    for (const auto& [a, b] : pairs)
      if (a == node_ || b == node_) return {a + b - node_, machine_.driver(a + b - node_, mine)};
    return {-1, -1};
  }

  /// So many that a usual link takes the time of a measurement; the same on all ranks.
  void choose_messages() {
    next("links between nodes, first messages");
    double mine = nothing;
    if (const auto [node, peer] = opponent(tournament(machine_.nodes.count()).front(), machine_.adapters); peer >= 0) {
      (void)rate(peer, 1, first_message);  // connects
      mine = rate(peer, 1, first_message);
    }
    std::vector<double> all(machine_.nodes.ranks());
    check(MPI_Allgather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, own_.comm), "MPI_Allgather");
    std::erase_if(all, [](double value) { return std::isnan(value); });
    const double bytes = std::max<double>(first_message, median(all) * options_.link_seconds / 2);
    messages_ = std::clamp(static_cast<int>(std::ceil(bytes / largest_message)), 1, most_messages);
    message_bytes_ = std::min(largest_message, static_cast<std::size_t>(bytes / messages_));
  }

  /// Seconds: half of the fastest round, which both sides know.
  double latency(int peer) {
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < pings; ++i) fastest = std::min(fastest, round_trip(peer) / 2);
    return fastest;
  }

  [[nodiscard]] double round_trip(int peer) const { return comm::mpi::round_trip(peer, rank_ < peer, own_.comm); }

  /// Bytes/s of what the peer sends while as much goes the other way, until the last byte is here.
  double rate(int peer, int messages, std::size_t size) {
    (void)round_trip(peer);  // both are here
    return static_cast<double>(size) * messages / exchange_.run({&peer, 1}, {&peer, 1}, messages, size, own_.comm);
  }

  /// [quantity][rank][partner]
  std::vector<std::vector<double>> gather() {
    next("gathering");
    std::vector<std::vector<double>> all;
    for (const std::vector<double>& mine : rows_) {
      const int count = static_cast<int>(mine.size());
      std::vector<double>& values = all.emplace_back(rank_ == 0 ? mine.size() * machine_.nodes.ranks() : 0);
      check(MPI_Gather(mine.data(), count, MPI_DOUBLE, values.data(), count, MPI_DOUBLE, 0, own_.comm), "MPI_Gather");
    }
    return all;
  }

  ProbeOptions options_;
  Machine machine_;
  int rank_, node_, local_;
  schedule::Program program_;
  std::int64_t elements_;
  Kernels kernels_;
  Bytes buffer_, staging_;  ///< what is sent, then what is received
  comm::mpi::OwnComm own_;
  std::unique_ptr<comm::Transport> transport_;
  int at_once_ = 1;   ///< ranks of a node that may compute at the same time
  int messages_ = 0;  ///< of a measurement between nodes
  std::size_t message_bytes_ = 0;
  comm::mpi::Exchange exchange_;
  std::vector<std::vector<double>> rows_;  ///< of this round: for each quantity the values of this rank
};
}  // namespace

std::unique_ptr<Probe> make_probe(MPI_Comm world, const topology::Placement& place, ProbeOptions options) {
  return std::make_unique<MpiProbe>(world, place, std::move(options));
}
}  // namespace minitaw::screen
