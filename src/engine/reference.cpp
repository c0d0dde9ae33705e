#include "engine/reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/transport.hpp"
#include "deck/deck.hpp"
#include "model/plan.hpp"
#include "model/reference.hpp"

namespace minitaw::engine {
namespace {

MakeTransport solo() {
  return [](const schedule::Program&, model::Buffer) {
    return NamedTransport{std::make_unique<comm::SoloTransport>(), "none"};
  };
}

}  // namespace

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

using model::ReferenceTensors;

/// Initial weights in double, as every rank has them in fp32.
ReferenceTensors initial_weights(const model::Layout& layout, std::uint64_t seed) {
  ReferenceTensors weights = model::reference_zeros(layout);
  const auto fill = [&](std::vector<double>& target, const auto& part) {
    std::vector<float> values(target.size(), 0.0F);
    model::initialise(values, part, layout.shape, seed);
    target.assign(values.begin(), values.end());
  };
  for (std::size_t s = 0; s < layout.shards.size(); ++s) fill(weights.shards[s], layout.shards[s]);
  fill(weights.embeddings, layout.embeddings);
  return weights;
}

void append(std::vector<NamedTensor>& result, const std::vector<model::Tensor>& tensors,
            const std::vector<double>& flat) {
  for (const model::Tensor& t : tensors)
    result.push_back({t.name, {flat.begin() + t.offset, flat.begin() + t.offset + t.size()}});
}

std::vector<NamedTensor> named(const model::Layout& layout, const ReferenceTensors& tensors) {
  std::vector<NamedTensor> result;
  for (std::size_t s = 0; s < layout.shards.size(); ++s)
    append(result, layout.shards[s].tensors, tensors.shards[s]);
  append(result, layout.embeddings.tensors, tensors.embeddings);
  return result;
}

model::Reference make_model(const deck::Case& c) {
  const model::Layout layout = model::make_layout(c.shape, {1, 1});
  return model::Reference(layout, initial_weights(layout, c.seed));
}

/// Gathered tensors in the places that the layout of one rank gives; their order is the layout's.
ReferenceTensors placed(const model::Layout& layout, const std::vector<NamedTensor>& tensors) {
  ReferenceTensors result = model::reference_zeros(layout);
  auto next = tensors.begin();
  const auto place = [&](std::vector<double>& flat, const std::vector<model::Tensor>& parts) {
    for (const model::Tensor& t : parts) {
      if (next == tensors.end() || next->name != t.name)
        throw LogicError(fmt::format("engine: {} is not where it was expected", t.name));
      std::ranges::copy(next++->values, flat.begin() + t.offset);
    }
  };
  for (std::size_t s = 0; s < layout.shards.size(); ++s) place(result.shards[s], layout.shards[s].tensors);
  place(result.embeddings, layout.embeddings.tensors);
  return result;
}

/// AdamW alone, in double precision, on gradients that come from elsewhere.
class Optimiser {
public:
  explicit Optimiser(const deck::Case& c) : adamw_(adamw_of(c)), model_(make_model(c)) {}

  void step(const std::vector<NamedTensor>& gradients) {
    model_.update(placed(model_.layout(), gradients), adamw_, ++steps_);
  }

  [[nodiscard]] Difference difference(const std::vector<NamedTensor>& weights, double slack) const {
    Difference result;
    auto next = weights.begin();
    const auto look = [&](const std::vector<double>& flat, const std::vector<model::Tensor>& parts) {
      for (const model::Tensor& t : parts) {
        const std::span wanted = std::span(flat).subspan(t.offset, t.size());
        const double error = weight_error(*next++, wanted, model_.layout().shape.dtype, slack);
        if (!(error <= result.worst) && !std::isnan(result.worst)) result = {error, t.name};
      }
    };
    const model::Layout& layout = model_.layout();
    for (std::size_t s = 0; s < layout.shards.size(); ++s)
      look(model_.weights().shards[s], layout.shards[s].tensors);
    look(model_.weights().embeddings, layout.embeddings.tensors);
    return result;
  }

private:
  model::AdamW adamw_;
  model::Reference model_;
  int steps_ = 0;
};

double sum_over(MPI_Comm comm, double value) {
  comm::mpi::check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, comm), "adding up the loss");
  return value;
}

}  // namespace

Reference run_steps(Session& session, const deck::Case& c, int steps, MPI_Comm comm) {
  std::optional<Optimiser> optimiser;
  if (session.rank() == 0) optimiser.emplace(serial_case(c));
  Reference executed;
  executed.key = reference_key(c, steps);
  for (int s = 0; s < steps; ++s) {
    session.prepare();
    executed.losses.push_back(sum_over(comm, session.step().loss));
    std::vector<NamedTensor> gradients = gather(session, Which::gradients, comm);
    if (optimiser) optimiser->step(gradients);
    if (s == 0) executed.gradients = std::move(gradients);
    else if (s + 1 == steps) executed.later = std::move(gradients);
  }
  const std::vector<NamedTensor> weights = gather(session, Which::weights, comm);
  if (optimiser) executed.weights = optimiser->difference(weights, serial_tolerance(c).weights);
  return executed;
}

Reference serial_reference(const deck::Case& c, int steps) {
  Session session(serial_case(c), 0, solo(), {});
  return run_steps(session, c, steps, MPI_COMM_SELF);
}

Reference float64_reference(const deck::Case& any, int steps) {
  const deck::Case c = serial_case(any);
  model::Reference model = make_model(c);
  const model::Layout& layout = model.layout();
  model::TokenSource source(c.shape, c.data, c.seed);
  std::vector<std::int32_t> tokens(c.shape.tokens());
  std::vector<std::int32_t> targets(c.shape.tokens());
  Reference reference;
  reference.key = reference_key(c, steps);
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

Check compare(const Reference& a, const Reference& b) {
  Check check;
  for (std::size_t s = 0; s < b.losses.size(); ++s) {
    double& worst = s == 0 ? check.first.loss : check.later.loss;
    const double error = loss_error(a.losses[s], b.losses[s]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error;
  }
  check.first.gradient = compare_gradients(a.gradients, b.gradients);
  check.later.gradient = compare_gradients(a.later, b.later);
  check.weights = a.weights;
  return check;
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
  Session session(serial_case(c), 0, solo(), {});
  session.prepare();
  Reference& made = known_[key];
  made.losses = {session.step().loss};
  made.gradients = gather(session, Which::gradients, MPI_COMM_SELF);
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
