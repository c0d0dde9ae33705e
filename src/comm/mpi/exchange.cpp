#include "comm/mpi/exchange.hpp"

#include "comm/mpi/pieces.hpp"
#include "comm/mpi/staged_exchange.hpp"

namespace minitaw::comm::mpi {
namespace {

void start(Channel& channel, const Message& message, std::size_t largest, std::vector<Request>& open) {
  std::vector<Piece> pieces;
  cut(Piece(message.data, message.bytes), largest, pieces);
  const int tag = static_cast<int>(message.payload);
  for (const Piece piece : pieces)
    open.push_back(message.send
                       ? channel.send(message.peer, tag, schedule::traffic_of(message.payload), piece)
                       : channel.receive(message.peer, tag, piece));
}

}  // namespace

void exchange(Channel& channel, std::span<const Message> batch, std::size_t largest,
              const comm::Transport::Received& received) {
  if (channel.moves().copier != nullptr) return exchange_staged(channel, batch);
  std::vector<Request> open;
  // Receives first, so that what the peer sends finds its place at once.
  for (const Message& message : batch)
    if (!message.send) start(channel, message, largest, open);
  const std::size_t receives = open.size();
  for (const Message& message : batch)
    if (message.send) start(channel, message, largest, open);
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (i == receives && receives > 0 && received) received();
    channel.wait(open[i]);
  }
}

}  // namespace minitaw::comm::mpi
