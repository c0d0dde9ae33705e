#include <array>

#include "engine/lane_space.hpp"
#include "mover.hpp"

namespace minitaw::bench {
namespace {

using schedule::Payload;

class Ours final : public Mover {
public:
  Ours(const std::string& transport, const Places& places, const comm::mpi::Patience& waiting)
      : staging_(2 * schedule::chunk_bytes * (schedule::lanes - 1)),
        made_(engine::make_transport(
            transport, {MPI_COMM_WORLD, places.program, {staging_.data(), staging_.bytes()}, waiting})) {}

  void move(Operation operation, const Place& place, const Seat& seat, const Size& size,
            Buffers& buffers) override {
    start(operation, place.lane, seat, size, buffers);
    if (made_.transport->on_stream()) engine::lane_space(place.lane).fence("minitaw::comm benchmark");
  }
  [[nodiscard]] Contents::Slices slices() const override { return Contents::Slices::in_place; }
  [[nodiscard]] std::string name() const override { return made_.name; }

private:
  void start(Operation operation, schedule::Lane lane, const Seat& seat, const Size& size, Buffers& buffers) {
    comm::Transport& transport = *made_.transport;
    const Payload payload = sums(operation) ? Payload::gradient : Payload::weights;
    const comm::Collective collective{seat.communicator, seat.ranks.front(),  payload,
                                      size.scalar,       buffers.data.data(), size.elements};
    switch (operation) {
    case Operation::send:
      return send(lane, seat, buffers);
    case Operation::shift:
      return shift(lane, seat, buffers);
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

  void send(schedule::Lane lane, const Seat& seat, Buffers& buffers) {
    const int peer = seat.sends() ? seat.next() : seat.previous();
    const comm::Message message{seat.sends(), peer, Payload::weights, buffers.data.data(),
                                buffers.data.bytes()};
    if (seat.sends() || seat.receives()) made_.transport->exchange(lane, {&message, 1});
  }

  void shift(schedule::Lane lane, const Seat& seat, Buffers& buffers) {
    const std::size_t bytes = buffers.data.bytes();
    const std::array<comm::Message, 2> batch{
        comm::Message{false, seat.previous(), Payload::weights, buffers.landing.data(), bytes},
        comm::Message{true, seat.next(), Payload::weights, buffers.data.data(), bytes}};
    made_.transport->exchange(lane, batch);
  }

  Memory staging_;  ///< outlives the transport
  engine::NamedTransport made_;
};

}  // namespace

std::unique_ptr<Mover> make_ours(const std::string& transport, const Places& places,
                                 const comm::mpi::Patience& waiting) {
  return std::make_unique<Ours>(transport, places, waiting);
}

}  // namespace minitaw::bench
