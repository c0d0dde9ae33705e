#include <array>

#include "engine/queue.hpp"
#include "backend.hpp"

namespace minitaw::bench {
namespace {

using schedule::Payload;

class Ours final : public Backend {
public:
  Ours(const std::string& transport, const Places& places, const comm::mpi::WaitPolicy& waiting)
      : waiting_(waiting), staging_(2 * schedule::chunk_bytes * (schedule::lanes - 1)),
        made_(engine::make_transport(
            transport, {MPI_COMM_WORLD, places.program, {staging_.data(), staging_.bytes()}, waiting})) {}

  void move(Operation operation, const Place& place, const Member& member, const Size& size,
            Buffers& buffers) override {
    const Lanes lanes{lane_of(operation, place, true), lane_of(operation, place, false)};
    start(operation, lanes, member, size, buffers);
    if (!made_.transport->on_stream()) return;
    for (const schedule::Lane lane : {lanes.out, lanes.in})
      engine::lane_space(lane).fence("minitaw::comm benchmark");
  }
  [[nodiscard]] Contents::Slices slices() const override { return Contents::Slices::in_place; }
  [[nodiscard]] std::string name() const override { return made_.name; }

private:
  /// Of messages; the same twice for collectives.
  struct Lanes {
    schedule::Lane out, in;
  };

  void start(Operation operation, const Lanes& lanes, const Member& member, const Size& size, Buffers& buffers) {
    comm::Transport& transport = *made_.transport;
    const schedule::Lane lane = lanes.in;
    const comm::Collective collective{member.communicator, member.ranks.front(),  payload_of(operation),
                                      size.scalar,       buffers.data.data(), size.elements};
    switch (operation) {
    case Operation::send:
      return send(lanes, member, buffers);
    case Operation::shift:
      return shift(lanes, member, buffers);
    case Operation::broadcast:
      return transport.broadcast(lane, collective);
    case Operation::reduce:
      return transport.reduce(lane, collective);
    case Operation::all_gather:
      return transport.all_gather(lane, collective);
    case Operation::reduce_scatter:
      return transport.reduce_scatter(lane, collective);
    case Operation::all_reduce:
      return transport.all_reduce(lane, collective);
    }
  }

  void send(const Lanes& lanes, const Member& member, Buffers& buffers) {
    const int peer = member.sends() ? member.next() : member.previous();
    const comm::Message message{member.sends(), peer, Payload::weights, buffers.data.data(),
                                buffers.data.bytes()};
    if (member.sends() || member.receives())
      made_.transport->exchange(member.sends() ? lanes.out : lanes.in, {&message, 1});
  }

  /// Both ways at once, as a rank's lanes are driven.
  void shift(const Lanes& lanes, const Member& member, Buffers& buffers) {
    const std::size_t bytes = buffers.data.bytes();
    const comm::Message arrives{false, member.previous(), Payload::weights, buffers.landing.data(), bytes},
        leaves{true, member.next(), Payload::weights, buffers.data.data(), bytes};
    const comm::Transport::Started in = made_.transport->start(lanes.in, {&arrives, 1}),
                                   out = made_.transport->start(lanes.out, {&leaves, 1});
    comm::mpi::Backoff backoff(waiting_);
    const auto done = [](const comm::Transport::Started& s) { return s == nullptr || s->done(); };
    while (!done(in) || !done(out)) {
      bool moved = false;
      for (const auto* started : {&in, &out}) moved = (!done(*started) && (*started)->advance()) || moved;
      if (moved) backoff = comm::mpi::Backoff(waiting_);
      else backoff.once();
    }
  }

  comm::mpi::WaitPolicy waiting_;
  Memory staging_;  ///< outlives the transport
  engine::NamedTransport made_;
};

}  // namespace

std::unique_ptr<Backend> make_ours(const std::string& transport, const Places& places,
                                 const comm::mpi::WaitPolicy& waiting) {
  return std::make_unique<Ours>(transport, places, waiting);
}

}  // namespace minitaw::bench
