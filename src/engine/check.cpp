#include "engine/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "deck/deck.hpp"
#include "model/plan.hpp"
#include "model/reference.hpp"

namespace minitaw::engine {

namespace {

using comm::mpi::check;
using model::ReferenceTensors;

/// A piece of a flat buffer that one rank holds for everybody.
struct Piece {
  int owner;
  model::Buffer buffer;  ///< on the owner
  std::int64_t elements;
  model::Dtype dtype;
};

template <class T>
std::vector<T> to_host(const Piece& piece) {
  using Device = Kokkos::View<const T*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  using Host = Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  std::vector<T> values(piece.elements);
  Kokkos::deep_copy(Host(values.data(), values.size()), Device(piece.buffer.as<T>(), values.size()));
  return values;
}

std::vector<float> values_of(const Piece& piece) {
  if (piece.dtype == model::Dtype::fp32) return to_host<float>(piece);
  const std::vector<Bf16> narrow = to_host<Bf16>(piece);
  std::vector<float> values(narrow.size());
  std::ranges::transform(narrow, values.begin(), to_float);
  return values;
}

/// Appends the piece's values on rank 0.
void fetch(const Piece& piece, int rank, MPI_Comm comm, std::vector<float>& flat) {
  if (rank != 0 && rank != piece.owner) return;
  std::vector<float> values(rank == piece.owner ? 0 : piece.elements);
  if (rank == piece.owner) values = values_of(piece);
  const int count = static_cast<int>(piece.elements);
  if (rank != 0)
    return check(MPI_Send(values.data(), count, MPI_FLOAT, 0, 0, comm), "sending tensors to rank 0");
  if (piece.owner != 0)
    check(MPI_Recv(values.data(), count, MPI_FLOAT, piece.owner, 0, comm, MPI_STATUS_IGNORE),
          "gathering tensors");
  flat.insert(flat.end(), values.begin(), values.end());
}

/// The first rank of the first copy (the others hold the same) for which `holds` is true.
template <class Holds>
int first_rank(const schedule::Program& program, const std::string& what, const Holds& holds) {
  for (int r = 0; r < static_cast<int>(program.ranks.size()) / program.copies; ++r)
    if (holds(program.ranks[r])) return r;
  throw LogicError("engine: nobody " + what);
}

/// Gradient totals are fp32, weights of the compute type.
model::Dtype dtype_of(const Trainer& trainer, Which which) {
  return which == Which::gradients ? model::Dtype::fp32 : trainer.layout().shape.dtype;
}

Piece shard_piece(const Trainer& trainer, int shard, int slice, Which which) {
  const schedule::Program& program = trainer.program();
  const int owner =
      first_rank(program, fmt::format("owns slice {} of shard {}", slice, shard),
                 [&](const schedule::RankProgram& rank) {
                   return rank.slice == slice && std::ranges::count(rank.owned_shards, shard) > 0;
                 });
  const State& state = trainer.state();
  model::Buffer buffer;
  if (owner == trainer.rank()) {
    const int at =
        static_cast<int>(std::ranges::find(state.owned_shards(), shard) - state.owned_shards().begin());
    buffer = which == Which::weights ? state.weights(at) : state.accumulator(at);
  }
  return {owner, buffer, trainer.layout().shards[shard].elements / program.owned_slices,
          dtype_of(trainer, which)};
}

/// Slice k of the embeddings is up to date with the rank that updates it.
Piece embeddings_piece(const Trainer& trainer, int slice, Which which) {
  const auto updates = [&](const schedule::Action& a) {
    return a.kind == schedule::Kind::update && a.payload == schedule::Payload::embeddings && a.shard == slice;
  };
  const int owner = first_rank(
      trainer.program(), fmt::format("updates slice {} of the embeddings", slice),
      [&](const schedule::RankProgram& rank) { return std::ranges::any_of(rank.actions, updates); });
  const State& state = trainer.state();
  const std::int64_t elements = trainer.layout().embeddings.slice;
  const model::Dtype dtype = dtype_of(trainer, which);
  model::Buffer buffer;
  if (owner == trainer.rank()) {
    buffer = which == Which::weights ? state.embeddings() : state.embeddings_accumulator();
    buffer.data += (slice * elements - state.embeddings_part().first) * model::bytes_of(dtype);
  }
  return {owner, buffer, elements, dtype};
}

template <class T>
void append(std::vector<NamedTensor>& result, const std::vector<model::Tensor>& tensors,
            const std::vector<T>& flat) {
  for (const model::Tensor& t : tensors)
    result.push_back({t.name, {flat.begin() + t.offset, flat.begin() + t.offset + t.size()}});
}

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

/// Not-a-number is the worst of all and must not compare as small.
bool is_worse(double error, double worst) { return !within(error, worst) && !std::isnan(worst); }

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

std::vector<NamedTensor> gather(const Trainer& trainer, Which which, MPI_Comm comm) {
  const model::Layout& layout = trainer.layout();
  const schedule::Program& program = trainer.program();
  const int rank = trainer.rank();
  std::vector<NamedTensor> result;
  for (int s = 0; s < static_cast<int>(layout.shards.size()); ++s) {
    std::vector<float> flat;
    for (int k = 0; k < program.owned_slices; ++k) fetch(shard_piece(trainer, s, k, which), rank, comm, flat);
    if (rank == 0) append(result, layout.shards[s].tensors, flat);
  }
  std::vector<float> flat;
  for (int k = 0; k < program.embeddings_slices; ++k)
    fetch(embeddings_piece(trainer, k, which), rank, comm, flat);
  if (rank == 0) append(result, layout.embeddings.tensors, flat);
  return result;
}

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
    if (is_worse(relative, result.worst)) result = {relative, a[i].name};
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

bool Check::passes(const Tolerance& t) const { return failure(t).empty(); }

std::string Check::failure(const Tolerance& t) const {
  std::string text;
  const auto look = [&](const std::string& what, double error, double allowed, const std::string& from) {
    if (text.empty() && !within(error, allowed))
      text = fmt::format("{} differs from {} by {:.1e} (allowed {:.1e})", what, from, error, allowed);
  };
  const std::string reference = "the " + t.reference;
  look("the first loss", first.loss, t.first.loss, reference);
  look("the gradient of " + first.gradient.tensor, first.gradient.worst, t.first.gradient, reference);
  look("a later loss", later.loss, t.later.loss, reference);
  look("the last gradient of " + later.gradient.tensor, later.gradient.worst, t.later.gradient, reference);
  look(weights.tensor, weights.worst, t.weights, "AdamW on the same gradients in double precision");
  return text;
}

Check compare(const Reference& a, const Reference& b) {
  Check check;
  for (std::size_t s = 0; s < b.losses.size(); ++s) {
    double& worst = s == 0 ? check.first.loss : check.later.loss;
    const double error = loss_error(a.losses[s], b.losses[s]);
    if (is_worse(error, worst)) worst = error;
  }
  check.first.gradient = compare_gradients(a.gradients, b.gradients);
  check.later.gradient = compare_gradients(a.later, b.later);
  check.weights = a.weights;
  return check;
}

deck::Case serial_case(const deck::Case& c) {
  deck::Case baseline = deck::on_one_rank(c);
  baseline.schedule = "serial";
  return baseline;
}

std::string reference_key(const deck::Case& c, int steps) {
  return fmt::format("{} steps={}", deck::identity(serial_case(c)), steps);
}

double flops(const deck::Case& c, int steps) {
  const model::Flops per_token = model::flops_per_token(c.shape);
  return (per_token.matmul + per_token.attention_causal) * deck::tokens_of_step(c) * steps;
}

namespace {

/// Calls visit(flat buffer, its tensors) for every shard and the embeddings.
template <class Tensors, class Visit>
void for_each_part(const model::Layout& layout, Tensors& tensors, const Visit& visit) {
  for (std::size_t s = 0; s < layout.shards.size(); ++s) visit(tensors.shards[s], layout.shards[s]);
  visit(tensors.embeddings, layout.embeddings);
}

/// With the initial weights in double, as every rank has them in fp32.
model::Reference make_model(const deck::Case& c) {
  const model::Layout layout = model::make_layout(c.shape, {1, 1});
  ReferenceTensors weights = model::reference_zeros(layout);
  for_each_part(layout, weights, [&](std::vector<double>& target, const auto& part) {
    std::vector<float> values(target.size(), 0.0F);
    model::initialise(values, part, layout.shape, c.seed);
    target.assign(values.begin(), values.end());
  });
  return model::Reference(layout, weights);
}

std::vector<NamedTensor> named(const model::Layout& layout, const ReferenceTensors& tensors) {
  std::vector<NamedTensor> result;
  for_each_part(layout, tensors, [&](const std::vector<double>& flat, const auto& part) {
    append(result, part.tensors, flat);
  });
  return result;
}

/// Gathered tensors in the layout of one rank, whose order they have.
ReferenceTensors flattened(const model::Layout& layout, const std::vector<NamedTensor>& tensors) {
  ReferenceTensors result = model::reference_zeros(layout);
  auto next = tensors.begin();
  for_each_part(layout, result, [&](std::vector<double>& flat, const auto& part) {
    for (const model::Tensor& t : part.tensors) {
      if (next == tensors.end() || next->name != t.name)
        throw LogicError(fmt::format("engine: {} is not where it was expected", t.name));
      std::ranges::copy(next++->values, flat.begin() + t.offset);
    }
  });
  return result;
}

/// AdamW alone, in double precision, on gradients that come from elsewhere.
class Optimiser {
public:
  explicit Optimiser(const deck::Case& c) : adamw_(adamw_of(c)), model_(make_model(c)) {}

  void step(const std::vector<NamedTensor>& gradients) {
    model_.update(flattened(model_.layout(), gradients), adamw_, ++steps_);
  }

  [[nodiscard]] Difference difference(const std::vector<NamedTensor>& weights, double slack) const {
    Difference result;
    const model::Layout& layout = model_.layout();
    auto next = weights.begin();
    for_each_part(layout, model_.weights(), [&](const std::vector<double>& flat, const auto& part) {
      for (const model::Tensor& t : part.tensors) {
        const std::span wanted = std::span(flat).subspan(t.offset, t.size());
        const double error = weight_error(*next++, wanted, layout.shape.dtype, slack);
        if (is_worse(error, result.worst)) result = {error, t.name};
      }
    });
    return result;
  }

private:
  model::AdamW adamw_;
  model::Reference model_;
  int steps_ = 0;
};

}  // namespace

Reference run_steps(Trainer& trainer, const deck::Case& c, int steps, MPI_Comm comm) {
  std::optional<Optimiser> optimiser;
  if (trainer.rank() == 0) optimiser.emplace(serial_case(c));
  Reference executed;
  for (int s = 0; s < steps; ++s) {
    trainer.prepare();
    (void)trainer.step();
    double loss = trainer.loss();
    check(MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, comm), "adding up the loss");
    executed.losses.push_back(loss);
    std::vector<NamedTensor> gradients = gather(trainer, Which::gradients, comm);
    if (optimiser) optimiser->step(gradients);
    if (s == 0) executed.gradients = std::move(gradients);
    else if (s + 1 == steps) executed.later = std::move(gradients);
  }
  const std::vector<NamedTensor> weights = gather(trainer, Which::weights, comm);
  if (optimiser) executed.weights = optimiser->difference(weights, serial_tolerance(c).weights);
  return executed;
}

Reference serial_reference(const deck::Case& c, int steps) {
  Trainer trainer(serial_case(c), 0, no_transport, {});
  return run_steps(trainer, c, steps, MPI_COMM_SELF);
}

Reference float64_reference(const deck::Case& any, int steps) {
  const deck::Case c = serial_case(any);
  model::Reference model = make_model(c);
  const model::Layout& layout = model.layout();
  model::TokenSource source(c.shape, c.data, c.seed);
  std::vector<std::int32_t> tokens(c.shape.tokens()), targets(c.shape.tokens());
  Reference reference;
  for (int s = 0; s < steps; ++s) {
    ReferenceTensors gradient = model::reference_zeros(layout);
    double loss = 0;
    for (int m = 0; m < c.micro_batches; ++m) {
      source.fill(tokens, targets, s, deck::first_sequence(c, m));
      loss += model.accumulate(gradient, tokens, targets, loss_scale(c));
    }
    reference.losses.push_back(loss);
    if (s == 0) reference.gradients = named(layout, gradient);
    else if (s + 1 == steps) reference.later = named(layout, gradient);
    model.update(gradient, adamw_of(c), s + 1);
  }
  return reference;
}

namespace {

/// What the references of a case are made of, bytes.
struct Parts {
  std::uint64_t arena;   ///< of the serial baseline
  std::uint64_t model;   ///< its tensors once, fp32
  std::uint64_t gather;  ///< of all tensors: flat, and by name
  std::uint64_t state;   ///< of the float64 model
  std::uint64_t activations;
};

Parts parts_of(const deck::Case& c) {
  const deck::Case baseline = serial_case(c);
  const schedule::Program program = schedule::build(deck::request_of(baseline));
  const model::Layout layout = model::make_layout(baseline.shape, schedule::cut_of(program));
  const std::uint64_t arena = schedule::memory(program, layout).front().total();
  if (!kernels::on_host) return {arena + model::library_estimate(baseline.shape), 0, 0, 0, 0};
  const std::uint64_t state = model::reference_state_bytes(layout), model = state / 8;
  return {arena, model, 2 * model, state, model::reference_activation_bytes(baseline.shape)};
}

}  // namespace

ReferenceMemory memory_of_check(const deck::Case& c) {
  const Parts p = parts_of(c);
  return {p.arena + p.gather, p.model + p.gather};
}

ReferenceMemory memory_of_verify(const deck::Case& c, int steps, int held) {
  const Parts p = parts_of(c);
  const std::uint64_t kept = (steps > 1 ? 2 : 1) * p.model;  // gradients of the first and of the last step
  const std::uint64_t serial = p.arena + p.gather + p.state, float64 = p.state + p.activations + kept;
  return {std::max(serial, float64) + held * kept, p.gather + p.state + kept + held * kept};
}

void References::add(const deck::Case& c) {
  constexpr std::size_t most = std::size_t{1} << 26;
  const std::string key = reference_key(c, 1);
  if (known_.contains(key)) return;
  if (values_ > most) forget();
  Trainer trainer(serial_case(c), 0, no_transport, {});
  trainer.prepare();
  (void)trainer.step();
  Reference& made = known_[key];
  made.losses = {trainer.loss()};
  made.gradients = gather(trainer, Which::gradients, MPI_COMM_SELF);
  for (const NamedTensor& t : made.gradients) values_ += t.values.size();
}

void References::forget() {
  known_.clear();
  values_ = 0;
}

const Reference& References::find(const deck::Case& c) const {
  static const Reference none;
  const auto at = known_.find(reference_key(c, 1));
  return at == known_.end() ? none : at->second;
}

}  // namespace minitaw::engine
