// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include "base/philox.hpp"
#include "engine/make_transport.hpp"
#include "engine/queue.hpp"
#include "instruments/links/messages.hpp"
#include "instruments/screen/probe.hpp"

namespace minitaw::screen {
namespace {
using links::busy_wait, schedule::Kind, schedule::Payload;
using Bytes = Kokkos::View<std::byte*, kernels::MemorySpace>;
using kernels::ExecutionSpace;

/// STREAM's triad.
struct Triad {
  float* a;
  const float *b, *c;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const { a[i] = b[i] + 3.0F * c[i]; }
};

/// A matrix with its memory. Its values are random: a device draws less power, and runs faster, on
/// zeros.
template <class E>
struct OwnMatrix : kernels::Matrix<E> {
  Kokkos::View<E**, Kokkos::LayoutRight, kernels::MemorySpace> memory;

  OwnMatrix(const ExecutionSpace& exec, std::int64_t rows, std::int64_t columns)
      : memory("minitaw::screen", rows, columns) {
    static_cast<kernels::Matrix<E>&>(*this) = memory;
    const kernels::Vector<E> all(memory.data(), memory.size());
    kernels::uniform<E>(exec, all, {}, 0, UniformRow{{}, {}, 0.0F, 1.0F});
  }
};

Work finished(const ExecutionSpace& exec, double amount, std::function<void()> launch) {
  return {amount, [exec, launch = std::move(launch)] {
            launch();
            exec.fence("minitaw::screen");
          }};
}

/// FLOP of the product that widens the MLP.
template <class E>
Work product(const model::Shape& s, const ExecutionSpace& exec) {
  const OwnMatrix<E> x(exec, s.tokens(), s.hidden), w(exec, 2 * s.ffn.front(), s.hidden),
      y(exec, s.tokens(), 2 * s.ffn.front());
  const double flop = 2.0 * (s.tokens() * s.hidden * 2 * s.ffn.front());
  return finished(exec, flop, [=] { kernels::linear_forward<E>(exec, y, x, w); });
}

/// FLOP of the forward pass, causal: 2 B S^2 h d.
template <class E>
Work attention(const model::Shape& s, const ExecutionSpace& exec) {
  const std::int64_t t = s.tokens(), a = s.heads * s.head_dim();
  const OwnMatrix<E> qkv(exec, t, s.qkv()), y(exec, t, a);
  const OwnMatrix<float> lse(exec, 1, s.heads * t);
  const kernels::AttentionSizes sizes = model::attention_sizes(s);
  return finished(exec, 2.0 * (t * s.seq * a), [=] {
    kernels::attention_forward<E>(
        exec, {y, kernels::Vector<float>(lse.data(), lse.extent(1)), qkv, sizes});
  });
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

/// What schedules do inside a node: messages of weights between all ranks, and the collectives of
/// their group.
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
        program.ranks[rank].actions.push_back({.kind = kind,
            .lane = lane,
            .payload = payload,
            .peer = peer,
            .communicator = communicator});
      };
      for (const int peer : nodes.members(n))
        for (const Kind kind : {Kind::send, Kind::recv})
          if (peer != rank)
            add(kind, Payload::weights, peer, -1);
      if (nodes.size(n) == 1)
        continue;
      add(Kind::all_gather, Payload::weights, -1, n);
      add(Kind::reduce_scatter, Payload::gradient, -1, n);
    }
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
        cores_(place.cores),
        node_(place.node),
        program_(program_of(place.nodes)),
        elements_(model::block_matmul_parameters(shape, 0)),
        exec_(engine::lane_space(schedule::Lane::compute)),
        buffer_("minitaw::screen", 2 * bytes()),
        staging_("minitaw::staging", 2 * schedule::chunk_bytes) {
    kernels::prepare(exec_);
    const auto sizes = model::attention_sizes(shape);
    model::with_element(
        shape.dtype, [&]<class E>(E) { kernels::attention_prepare<E>(exec_, sizes); });
    comm::mpi::check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
    transport_ = engine::make_transport("auto",
        {own_.comm, program_, {staging_.data(), staging_.size()}, busy_wait, shared_devices});
  }

  double now() override { return MPI_Wtime(); }

  rates::CoreUse core_use() override { return rates::core_use(cores_); }

  std::vector<Kernel> kernels() const override {
    std::vector<Kernel> all;
    model::with_element(shape_.dtype, [&]<class E>(E) {
      all = {{"matrix product", "FLOP/s", [this] { return product<E>(shape_, exec_); }},
          {"attention", "FLOP/s", [this] { return attention<E>(shape_, exec_); }},
          {"triad", "B/s", [this] { return triad(exec_); }}};
    });
    if (kernels::on_host)
      return all;
    all.push_back({"copy to the device", "B/s", [this] { return copy(exec_, true); }});
    all.push_back({"copy from the device", "B/s", [this] { return copy(exec_, false); }});
    return all;
  }

  Work exchange(int peer) override {
    return {static_cast<double>(bytes()), [this, peer] {
              const auto start = [&](Kind kind, std::byte* data) {
                constexpr auto payload = Payload::weights;
                return transport_->start(lane_of(kind, payload, true),
                    {kind == Kind::send, peer, payload, data, bytes()});
              };
              const auto in = start(Kind::recv, buffer_.data() + bytes()),
                         out = start(Kind::send, buffer_.data());
              comm::finish({&in, &out}, busy_wait);  // neither may be waited for alone
              fence();
            }};
  }

  Work collect(Kind kind) override {
    return {static_cast<double>(bytes()), [this, kind] {
              const auto payload = kind == Kind::all_gather ? Payload::weights : Payload::gradient;
              const auto transfer = transport_->start(lane_of(kind, payload, true),
                  kind,
                  {node_, -1, payload, model::Dtype::fp32, buffer_.data(), elements_});
              comm::finish({&transfer}, busy_wait);
              fence();
            }};
  }

  double round_trip(int peer) override {
    return links::round_trip(peer, comm::mpi::rank_in(own_.comm) < peer, own_.comm);
  }

  double messages(int peer, int count, std::size_t size) override {
    return exchange_.run({&peer, 1}, {&peer, 1}, count, size, own_.comm);
  }

private:
  std::size_t bytes() const { return static_cast<std::size_t>(elements_) * sizeof(float); }

  /// Returns when what the transport has put on queues of the device is over too.
  void fence() const {
    for (int l = 0; l < schedule::lanes && transport_->on_stream(); ++l)
      engine::lane_space(static_cast<schedule::Lane>(l)).fence("minitaw::screen");
  }

  model::Shape shape_;
  std::vector<int> cores_;
  int node_;
  schedule::Program program_;
  std::int64_t elements_;
  ExecutionSpace exec_;
  Bytes buffer_, staging_;  ///< what is sent, then what is received
  comm::mpi::OwnComm own_;
  std::unique_ptr<comm::Transport> transport_;
  links::Exchange exchange_;
};
}  // namespace

std::unique_ptr<Workbench> make_workbench(MPI_Comm world,
    const topology::Placement& place,
    const model::Shape& shape,
    bool shared_devices) {
  return std::make_unique<MpiWorkbench>(world, place, shape, shared_devices);
}
}  // namespace minitaw::screen
