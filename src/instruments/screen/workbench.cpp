// SPDX-License-Identifier: BSD-3-Clause
#include "base/philox.hpp"
#include "engine/make_transport.hpp"
#include "engine/queue.hpp"
#include "instruments/screen/probe.hpp"

namespace minitaw::screen {
namespace {
using comm::mpi::check_mpi, schedule::Kind, schedule::Payload;
using Bytes = Kokkos::View<std::byte*, kernels::MemorySpace>;
using kernels::ExecutionSpace;

/// Ranks that measure test again at once, yielding to others on their core.
constexpr comm::WaitPolicy busy_wait{.spins = 0, .yields = std::numeric_limits<int>::max()};

/// STREAM's triad.
struct Triad {
  float* a;
  const float *b, *c;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const { a[i] = b[i] + 3.0F * c[i]; }
};

template <class E>
using OwnMatrix = Kokkos::View<E**, Kokkos::LayoutRight, kernels::MemorySpace>;

/// Random values: a device draws less power, and runs faster, on zeros.
template <class E>
OwnMatrix<E> random_matrix(const ExecutionSpace& exec, std::int64_t rows, std::int64_t columns) {
  const OwnMatrix<E> matrix("minitaw::screen", rows, columns);
  const kernels::Vector<E> all(matrix.data(), matrix.size());
  kernels::uniform<E>(exec, all, {}, 0, UniformRow{{}, {}, 0.0F, 1.0F});
  return matrix;
}

Work finished(const ExecutionSpace& exec, double amount, std::function<void()> launch) {
  return {amount, [exec, launch = std::move(launch)] {
            launch();
            exec.fence("minitaw::screen");
          }};
}

/// FLOP of the product that widens the MLP.
template <class E>
Work product(const model::Shape& s, const ExecutionSpace& exec) {
  const auto x = random_matrix<E>(exec, s.tokens(), s.hidden),
             w = random_matrix<E>(exec, 2 * s.ffn, s.hidden),
             y = random_matrix<E>(exec, s.tokens(), 2 * s.ffn);
  const double flop = 2.0 * (s.tokens() * s.hidden * 2 * s.ffn);
  return finished(exec, flop, [=] { kernels::linear_forward<E>(exec, y, x, w); });
}

/// Bytes of a = b + 3 c (STREAM's triad), which fits no cache.
Work triad(const ExecutionSpace& exec) {
  const std::int64_t n = kernels::on_host ? 8 << 20 : 64 << 20;
  const Kokkos::View<float*, kernels::MemorySpace> a("a", n), b("b", n), c("c", n);
  return finished(exec, 3.0 * sizeof(float) * n, [=] {
    Kokkos::parallel_for(
        "minitaw::triad", Kokkos::RangePolicy(exec, 0, n), Triad{a.data(), b.data(), c.data()});
  });
}

/// Bytes from pinned memory to the device, or back.
Work copy(const ExecutionSpace& exec, bool to_device) {
  const std::size_t bytes = 64 << 20;
  const Bytes there("device", bytes);
  const Kokkos::View<std::byte*, kernels::PinnedSpace> here("pinned", bytes);
  return finished(exec, bytes, [=] {
    if (to_device)
      Kokkos::deep_copy(exec, there, here);
    else
      Kokkos::deep_copy(exec, here, there);
  });
}

/// Messages of weights between all ranks of a node, as in schedules.
schedule::Program program_of(const topology::Groups& nodes) {
  schedule::Program program;
  program.schedule = "screen";
  program.groups = nodes;
  for (int rank = 0; rank < nodes.ranks(); ++rank) {
    std::vector<schedule::Action>& actions = program.ranks.emplace_back().actions;
    for (const int peer : nodes.members(nodes.group_of(rank)))
      for (const Kind kind : {Kind::send, Kind::recv})
        if (peer != rank)
          actions.push_back({.kind = kind,
              .lane = schedule::lane_of(kind, Payload::weights, true),
              .payload = Payload::weights,
              .peer = peer});
  }
  return program;
}

class MpiWorkbench final : public Workbench {
public:
  MpiWorkbench(MPI_Comm world,
      const topology::Placement& place,
      const model::Shape& shape,
      bool shared_devices)
      : shape_(shape),
        cores_(place.processors),
        program_(program_of(place.nodes)),
        bytes_(model::block_matmul_parameters(shape) * sizeof(float)),
        exec_(engine::lane_space(schedule::Lane::compute)),
        buffer_("minitaw::screen", 2 * bytes_),
        staging_("minitaw::staging", 2 * schedule::piece_bytes) {
    kernels::prepare(exec_);
    check_mpi(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
    transport_ = engine::make_transport("auto",
        {own_.comm, program_, {staging_.data(), staging_.size()}, busy_wait, shared_devices});
  }

  double now() override { return MPI_Wtime(); }

  rates::CoreUse core_use() override { return rates::core_use(cores_); }

  std::vector<Kernel> kernels() const override {
    std::vector<Kernel> all;
    model::with_element(shape_.dtype, [&]<class E>(E) {
      all = {{"matrix product", "FLOP/s", [this] { return product<E>(shape_, exec_); }},
          {"triad", "B/s", [this] { return triad(exec_); }}};
    });
    for (const bool to_device : {true, false})
      if (!kernels::on_host)
        all.push_back({to_device ? "copy to the device" : "copy from the device", "B/s", [=, this] {
                         return copy(exec_, to_device);
                       }});
    return all;
  }

  Work exchange(int peer) override {
    return {1.0 * bytes_, [this, peer] {
              const auto start = [&](Kind kind, std::byte* data) {
                constexpr auto payload = Payload::weights;
                return transport_->start(lane_of(kind, payload, true),
                    {kind == Kind::send, peer, payload, data, bytes_});
              };
              const auto in = start(Kind::recv, buffer_.data() + bytes_),
                         out = start(Kind::send, buffer_.data());
              comm::finish({&in, &out}, busy_wait);  // neither may be waited for alone
              fence();
            }};
  }

  /// From its own send to the answer on each side, whoever came later: the lower rank sends first
  /// and answers the answer.
  double round_trip(int peer) override {
    const bool is_lower = comm::mpi::rank_in(own_.comm) < peer;
    if (!is_lower)
      pass_word(peer, false);
    const double begin = now();
    pass_word(peer, true);
    pass_word(peer, false);
    const double seconds = now() - begin;
    if (is_lower)
      pass_word(peer, true);
    return seconds;
  }

  /// Two messages are under way: the handshake of one passes while another one does.
  double messages(int peer, int count, std::size_t size) override {
    constexpr int under_way = 2;
    sent_.resize(size);
    received_.resize(under_way * size);
    const int bytes = size;
    const double begin = now();
    double arrived = begin;
    for (int left = count; left > 0; left -= under_way) {
      std::vector<MPI_Request> in, out;
      for (int i = 0; i < std::min(left, under_way); ++i) {
        std::byte* const data = received_.data() + i * size;
        check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, own_.comm, &in.emplace_back()),
            "MPI_Irecv");
        check_mpi(
            MPI_Isend(sent_.data(), bytes, MPI_BYTE, peer, tag, own_.comm, &out.emplace_back()),
            "MPI_Isend");
      }
      comm::mpi::wait(in, busy_wait);
      arrived = now();
      comm::mpi::wait(out, busy_wait);
    }
    return arrived - begin;
  }

private:
  static constexpr int tag = 1;

  void pass_word(int peer, bool sends) const {
    double word = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(sends ? MPI_Isend(&word, 1, MPI_DOUBLE, peer, tag, own_.comm, &request)
                    : MPI_Irecv(&word, 1, MPI_DOUBLE, peer, tag, own_.comm, &request),
        "a round trip");
    comm::mpi::wait({&request, 1}, busy_wait);
  }

  /// Returns when what the transport has put on queues of the device is over too.
  void fence() const {
    for (int l = 0; l < schedule::lanes && transport_->on_stream(); ++l)
      engine::lane_space(static_cast<schedule::Lane>(l)).fence("minitaw::screen");
  }

  model::Shape shape_;
  std::vector<int> cores_;
  schedule::Program program_;
  std::size_t bytes_;  ///< of a block's weights
  ExecutionSpace exec_;
  Bytes buffer_, staging_;  ///< what is sent, then what is received
  comm::mpi::OwnComm own_;
  std::unique_ptr<comm::Transport> transport_;
  std::vector<std::byte> sent_, received_;  ///< between nodes
};
}  // namespace

std::unique_ptr<Workbench> make_workbench(MPI_Comm world,
    const topology::Placement& place,
    const model::Shape& shape,
    bool shared_devices) {
  return std::make_unique<MpiWorkbench>(world, place, shape, shared_devices);
}
}  // namespace minitaw::screen
