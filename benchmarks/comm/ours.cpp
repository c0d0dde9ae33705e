#include <array>

#include "engine/queue.hpp"
#include "mover.hpp"

namespace minitaw::bench {
namespace {

using schedule::Payload;

class Ours final : public Mover {
public:
  Ours(const std::string& transport, const Places& places, const comm::mpi::Patience& waiting)
      : waiting_(waiting), staging_(2 * schedule::chunk_bytes * (schedule::lanes - 1)),
        made_(engine::make_transport(
            transport, {MPI_COMM_WORLD, places.program, {staging_.data(), staging_.bytes()}, waiting})) {}

  void move(Operation operation, const Place& place, const Seat& seat, const Size& size,
            Buffers& buffers) override {
    const Lanes lanes{lane_of(operation, place, true), lane_of(operation, place, false)};
    start(operation, lanes, seat, size, buffers);
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

  void start(Operation operation, const Lanes& lanes, const Seat& seat, const Size& size, Buffers& buffers) {
    comm::Transport& transport = *made_.transport;
    const schedule::Lane lane = lanes.in;
    const comm::Collective collective{seat.communicator, seat.ranks.front(),  payload_of(operation),
                                      size.scalar,       buffers.data.data(), size.elements};
    switch (operation) {
    case Operation::send:
      return send(lanes, seat, buffers);
    case Operation::shift:
      return shift(lanes, seat, buffers);
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

  void send(const Lanes& lanes, const Seat& seat, Buffers& buffers) {
    const int peer = seat.sends() ? seat.next() : seat.previous();
    const comm::Message message{seat.sends(), peer, Payload::weights, buffers.data.data(),
                                buffers.data.bytes()};
    if (seat.sends() || seat.receives())
      made_.transport->exchange(seat.sends() ? lanes.out : lanes.in, {&message, 1});
  }

  /// Both ways at once, as a rank's lanes are driven.
  void shift(const Lanes& lanes, const Seat& seat, Buffers& buffers) {
    const std::size_t bytes = buffers.data.bytes();
    const comm::Message arrives{false, seat.previous(), Payload::weights, buffers.landing.data(), bytes},
        leaves{true, seat.next(), Payload::weights, buffers.data.data(), bytes};
    const comm::Transport::Started in = made_.transport->start(lanes.in, {&arrives, 1}),
                                   out = made_.transport->start(lanes.out, {&leaves, 1});
    comm::mpi::Pause pause(waiting_);
    const auto done = [](const comm::Transport::Started& s) { return s == nullptr || s->done(); };
    while (!done(in) || !done(out)) {
      bool moved = false;
      for (const auto* started : {&in, &out}) moved = (!done(*started) && (*started)->advance()) || moved;
      if (moved) pause = comm::mpi::Pause(waiting_);
      else pause.once();
    }
  }

  comm::mpi::Patience waiting_;
  Memory staging_;  ///< outlives the transport
  engine::NamedTransport made_;
};

}  // namespace

std::unique_ptr<Mover> make_ours(const std::string& transport, const Places& places,
                                 const comm::mpi::Patience& waiting) {
  return std::make_unique<Ours>(transport, places, waiting);
}

}  // namespace minitaw::bench
