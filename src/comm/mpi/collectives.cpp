#include "comm/mpi/collectives.hpp"

#include "comm/sum.hpp"

namespace minitaw::comm::mpi {
namespace {

/// Two pieces fill the staging memory: one is added while the next arrives.
constexpr std::size_t piece_bytes = schedule::chunk_bytes;

}  // namespace

void cut(const Buffer& buffer, const Slice& slice, std::vector<Piece>& pieces) {
  const auto scalar = static_cast<std::int64_t>(bytes_of(buffer.scalar));
  cut(Piece(buffer.data + slice.begin * scalar, static_cast<std::size_t>(slice.count * scalar)), piece_bytes,
      pieces);
}

std::vector<Piece> whole(const Buffer& buffer) {
  std::vector<Piece> pieces;
  cut(buffer, {0, buffer.elements}, pieces);
  return pieces;
}

std::vector<Piece> staged(const Channel& channel, const std::vector<Piece>& pieces) {
  const Piece staging = channel.staging();
  std::vector<Piece> places;
  for (std::size_t k = 0; k < pieces.size(); ++k)
    places.push_back(staging.subspan(k % 2 * piece_bytes, pieces[k].size()));
  return places;
}

void add(Scalar scalar, Piece target, Piece other) {
  add(scalar, target.data(), other.data(), static_cast<std::int64_t>(target.size() / bytes_of(scalar)));
}

}  // namespace minitaw::comm::mpi
