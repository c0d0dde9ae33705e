#include "engine/check.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "deck/deck.hpp"

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
        std::ranges::find(program.ranks[r].owned_shards, shard) != program.ranks[r].owned_shards.end())
      return r;
  throw LogicError(fmt::format("engine: nobody owns slice {} of shard {}", slice, shard));
}

Piece shard_piece(const Session& session, int shard, int slice, Which which) {
  const schedule::Program& program = session.program();
  Piece piece{owner_of(program, shard, slice),
              {},
              session.layout().shards[shard].elements / program.owned_slices,
              dtype_of(session, which)};
  const std::vector<int>& owned_shards = session.state().owned_shards();
  if (const auto at = std::ranges::find(owned_shards, shard); at != owned_shards.end()) {
    const int owned = static_cast<int>(at - owned_shards.begin());
    piece.buffer =
        which == Which::weights ? session.state().weights(owned) : session.state().accumulator(owned);
  }
  return piece;
}

/// Slice k of the embeddings is up to date with the rank that updates it.
int keeper_of(const schedule::Program& program, int slice) {
  for (int r = 0; r < ranks_of_copy(program); ++r)
    for (const schedule::Action& a : program.ranks[r].actions)
      if (a.kind == schedule::Kind::update && a.payload == schedule::Payload::embeddings && a.shard == slice)
        return r;
  throw LogicError(fmt::format("engine: nobody updates slice {} of the embeddings", slice));
}

Piece embeddings_piece(const Session& session, int slice, Which which) {
  const State& state = session.state();
  const model::Buffer held = which == Which::weights ? state.embeddings() : state.embeddings_accumulator();
  const std::int64_t elements = session.layout().embeddings.slice;
  const model::Dtype dtype = dtype_of(session, which);
  Piece piece{keeper_of(session.program(), slice), {}, elements, dtype};
  if (piece.owner != session.rank()) return piece;
  const std::size_t width = model::bytes_of(dtype);
  piece.buffer = {held.data + (slice * elements - state.embeddings_part().first) * width, elements * width};
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
    for (int slice = 0; slice < session.program().owned_slices; ++slice)
      extend(flat, fetch(shard_piece(session, s, slice, which), rank, comm));
    if (rank == 0) append(result, layout.shards[s].tensors, flat);
  }
  std::vector<float> embeddings;
  for (int slice = 0; slice < session.program().embeddings_slices; ++slice) {
    extend(embeddings, fetch(embeddings_piece(session, slice, which), rank, comm));
  }
  if (rank == 0) append(result, layout.embeddings.tensors, embeddings);
  return result;
}

namespace {

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

double sum_of_squared_differences(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

double root_mean_square(double sum, std::size_t count) {
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(1, count)));
}

double of_all(const std::vector<NamedTensor>& tensors) {
  double sum = 0;
  std::size_t count = 0;
  for (const NamedTensor& t : tensors) {
    sum += sum_of_squares(t.values);
    count += t.values.size();
  }
  return root_mean_square(sum, count);
}

float rounded(double value) { return to_float(to_bf16(static_cast<float>(value))); }

/// Written so that not-a-number is out.
bool within(double error, double limit) { return error <= limit; }

Tolerance tolerance(const deck::Case& c, const std::string& reference, Tolerance::Step first,
                    Tolerance::Step later) {
  // What tokens contribute is rounded independently of each other, so its sum is the more exact the more
  // there are.
  const double few = std::sqrt(std::max(1.0, 128 / deck::tokens_of_step(c)));
  for (Tolerance::Step* step : {&first, &later}) *step = {few * step->loss, few * step->gradient};
  // AdamW rounds a weight by at most 2^-24 of it in each step.
  return {reference, first, later, 1e-6 + 1e-7 * c.steps};
}

}  // namespace

double loss_error(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1.0); }

Difference compare_gradients(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size()) throw LogicError("engine: models with different tensors cannot be compared");
  const double least = std::max(1e-2 * of_all(b), 1e-9);
  Difference result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::size_t count = b[i].values.size();
    if (a[i].values.size() != count) throw LogicError("engine: a tensor of another size cannot be compared");
    const double apart = root_mean_square(sum_of_squared_differences(a[i].values, b[i].values), count);
    const double relative = apart / std::max(root_mean_square(sum_of_squares(b[i].values), count), least);
    // Not-a-number is the worst of all and must not compare as small.
    if (!within(relative, result.worst)) result = {relative, a[i].name};
    if (std::isnan(relative)) break;
  }
  return result;
}

double weight_error(const NamedTensor& tensor, std::span<const double> wanted, model::Dtype dtype,
                    double slack) {
  if (tensor.values.size() != wanted.size())
    throw LogicError("engine: a tensor of another size cannot be compared");
  double norm = 0, apart = 0;
  for (const double w : wanted) norm += w * w;
  const double size = root_mean_square(norm, wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double value = tensor.values[i];
    double right = wanted[i];
    if (dtype == model::Dtype::bf16) {
      const double either = slack * std::max(std::abs(right), size);
      right = std::clamp<double>(value, rounded(right - either), rounded(right + either));
    }
    apart += (value - right) * (value - right);
  }
  return root_mean_square(apart, wanted.size()) / std::max(size, 1e-9);
}

Tolerance serial_tolerance(const deck::Case& c) {
  if (c.shape.dtype == model::Dtype::fp32)
    return tolerance(c, "serial reference", {1e-6, 1e-5}, {1e-6, 1e-4});
  return tolerance(c, "serial reference", {1e-3, 2e-2}, {5e-3, 2e-1});
}

Tolerance float64_tolerance(const deck::Case& c) {
  if (c.shape.dtype == model::Dtype::fp32)
    return tolerance(c, "float64 reference", {1e-5, 1e-4}, {1e-5, 1e-3});
  return tolerance(c, "float64 reference", {4e-3, 5e-2}, {5e-3, 2e-1});
}

bool Check::passes(const Tolerance& t) const {
  const auto step = [](const Step& found, const Tolerance::Step& allowed) {
    return within(found.loss, allowed.loss) && within(found.gradient.worst, allowed.gradient);
  };
  return step(first, t.first) && step(later, t.later) && within(weights.worst, t.weights);
}

std::string Check::failure(const Tolerance& t) const {
  std::string text;
  const auto look = [&](const std::string& what, double error, double allowed, const std::string& from) {
    if (text.empty() && !within(error, allowed))
      text = fmt::format("{} differs from {} by {:.1e} (allowed {:.1e})", what, from, error, allowed);
  };
  look("the first loss", first.loss, t.first.loss, "the " + t.reference);
  look("the gradient of " + first.gradient.tensor, first.gradient.worst, t.first.gradient,
       "the " + t.reference);
  look("a later loss", later.loss, t.later.loss, "the " + t.reference);
  look("the last gradient of " + later.gradient.tensor, later.gradient.worst, t.later.gradient,
       "the " + t.reference);
  look(weights.tensor, weights.worst, t.weights, "AdamW on the same gradients in double precision");
  return text;
}

}  // namespace minitaw::engine
