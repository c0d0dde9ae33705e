#include "engine/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "comm/mpi/check.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;

/// A piece of a flat buffer that one rank holds for everybody.
struct Piece {
  int owner = -1;
  model::Buffer buffer;  ///< on the owner
  std::int64_t elements = 0;
  model::Dtype dtype = model::Dtype::fp32;
};

template <class T>
std::vector<T> to_host(model::Buffer buffer, std::int64_t elements) {
  using Device = Kokkos::View<const T*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  using Host = Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  std::vector<T> values(elements);
  Kokkos::deep_copy(Host(values.data(), values.size()), Device(buffer.as<T>(), values.size()));
  return values;
}

std::vector<float> to_host(const Piece& piece) {
  if (piece.dtype == model::Dtype::fp32) return to_host<float>(piece.buffer, piece.elements);
  const std::vector<Bf16> narrow = to_host<Bf16>(piece.buffer, piece.elements);
  std::vector<float> values(narrow.size());
  std::ranges::transform(narrow, values.begin(), to_float);
  return values;
}

/// Gradient totals are fp32, weights of the compute type.
model::Dtype dtype_of(const Session& session, Which which) {
  return which == Which::gradients ? model::Dtype::fp32 : session.layout().shape.dtype;
}

/// The piece's values on rank 0; empty elsewhere.
std::vector<float> fetch(const Piece& piece, int rank, MPI_Comm comm) {
  std::vector<float> values;
  if (rank == piece.owner) values = to_host(piece);
  if (piece.owner == 0 || (rank != 0 && rank != piece.owner))
    return rank == 0 ? values : std::vector<float>();
  const int count = static_cast<int>(piece.elements);
  if (rank == piece.owner) {
    check(MPI_Send(values.data(), count, MPI_FLOAT, 0, 0, comm), "sending tensors to rank 0");
    return {};
  }
  values.resize(piece.elements);
  check(MPI_Recv(values.data(), count, MPI_FLOAT, piece.owner, 0, comm, MPI_STATUS_IGNORE),
        "gathering tensors");
  return values;
}

/// The ranks of the first copy; the others hold the same.
int ranks_of_copy(const schedule::Program& program) {
  return static_cast<int>(program.ranks.size()) / program.copies;
}

int owner_of(const schedule::Program& program, int shard, int slice) {
  for (int r = 0; r < ranks_of_copy(program); ++r)
    if (program.ranks[r].slice == slice &&
        std::ranges::find(program.ranks[r].homes, shard) != program.ranks[r].homes.end())
      return r;
  throw LogicError(fmt::format("engine: nobody owns slice {} of shard {}", slice, shard));
}

Piece shard_piece(const Session& session, int shard, int slice, Which which) {
  const schedule::Program& program = session.program();
  Piece piece{owner_of(program, shard, slice),
              {},
              session.layout().shards[shard].elements / program.home_slices,
              dtype_of(session, which)};
  const std::vector<int>& homes = session.state().homes();
  if (const auto at = std::ranges::find(homes, shard); at != homes.end()) {
    const int home = static_cast<int>(at - homes.begin());
    piece.buffer = which == Which::weights ? session.state().weights(home) : session.state().total(home);
  }
  return piece;
}

/// Slice k of the ends is up to date with the rank that updates it.
int keeper_of(const schedule::Program& program, int slice) {
  for (int r = 0; r < ranks_of_copy(program); ++r)
    for (const schedule::Action& a : program.ranks[r].actions)
      if (a.kind == schedule::Kind::update && a.payload == schedule::Payload::ends && a.shard == slice)
        return r;
  throw LogicError(fmt::format("engine: nobody updates slice {} of the ends", slice));
}

Piece ends_piece(const Session& session, int slice, Which which) {
  const State& state = session.state();
  const model::Buffer held = which == Which::weights ? state.ends() : state.ends_total();
  const std::int64_t elements = session.layout().ends.slice;
  const model::Dtype dtype = dtype_of(session, which);
  Piece piece{keeper_of(session.program(), slice), {}, elements, dtype};
  if (piece.owner != session.rank()) return piece;
  const std::size_t width = model::bytes_of(dtype);
  piece.buffer = {held.data + (slice * elements - state.ends_part().first) * width, elements * width};
  return piece;
}

void extend(std::vector<float>& flat, const std::vector<float>& more) {
  flat.insert(flat.end(), more.begin(), more.end());
}

void append(std::vector<NamedTensor>& result, const std::vector<model::Tensor>& tensors,
            const std::vector<float>& flat) {
  for (const model::Tensor& t : tensors)
    result.push_back({t.name, {flat.begin() + t.offset, flat.begin() + t.offset + t.size()}});
}

}  // namespace

std::vector<NamedTensor> gather(const Session& session, Which which, MPI_Comm comm) {
  const model::Layout& layout = session.layout();
  const int rank = session.rank();
  std::vector<NamedTensor> result;
  for (int s = 0; s < static_cast<int>(layout.shards.size()); ++s) {
    std::vector<float> flat;
    for (int slice = 0; slice < session.program().home_slices; ++slice)
      extend(flat, fetch(shard_piece(session, s, slice, which), rank, comm));
    if (rank == 0) append(result, layout.shards[s].tensors, flat);
  }
  std::vector<float> ends;
  for (int slice = 0; slice < session.program().ends_slices; ++slice) {
    extend(ends, fetch(ends_piece(session, slice, which), rank, comm));
  }
  if (rank == 0) append(result, layout.ends.tensors, ends);
  return result;
}

}  // namespace minitaw::engine
