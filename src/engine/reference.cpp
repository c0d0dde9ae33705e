#include "engine/reference.hpp"

#include <fmt/format.h>

#include "comm/local.hpp"
#include "deck/sequences.hpp"
#include "model/reference.hpp"

namespace minitaw::engine {
namespace {

MakeTransport solo() {
  return [](const schedule::Program&, model::Buffer) {
    return NamedTransport{std::make_unique<comm::SoloTransport>(), "none"};
  };
}

}  // namespace

deck::Case serial_twin(const deck::Case& c) {
  deck::Case twin = deck::on_one_rank(c);
  twin.schedule = "serial";
  return twin;
}

std::string reference_key(const deck::Case& c, int steps) {
  return fmt::format("{} steps={}", deck::identity(serial_twin(c)), steps);
}

double flops(const deck::Case& c, int steps) {
  const model::Flops per_token = model::flops_per_token(c.shape);
  return (per_token.matmul + per_token.attention_causal) * deck::tokens_of_step(c) * steps;
}

Reference serial_reference(const deck::Case& c, int steps) {
  Reference reference;
  reference.key = reference_key(c, steps);
  Session session(serial_twin(c), 0, solo(), {});
  for (int s = 0; s < steps; ++s) {
    session.prepare();
    reference.losses.push_back(session.step().loss);
    if (s == 0) reference.gradients = gather(session, Which::gradients, MPI_COMM_SELF);
  }
  reference.weights = gather(session, Which::weights, MPI_COMM_SELF);
  return reference;
}

void References::add(const deck::Case& c, int steps) {
  constexpr std::size_t most = std::size_t{1} << 26;
  const std::string key = reference_key(c, steps);
  if (known_.contains(key)) return;
  if (values_ > most) {
    known_.clear();
    values_ = 0;
  }
  const Reference& made = known_[key] = serial_reference(c, steps);
  for (const auto* tensors : {&made.gradients, &made.weights})
    for (const NamedTensor& t : *tensors) values_ += t.values.size();
}

const Reference& References::find(const deck::Case& c, int steps) const {
  static const Reference none;
  const auto at = known_.find(reference_key(c, steps));
  return at == known_.end() ? none : at->second;
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
  fill(weights.ends, layout.ends);
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
  append(result, layout.ends.tensors, tensors.ends);
  return result;
}

}  // namespace

Reference float64_reference(const deck::Case& any, int steps) {
  const deck::Case c = serial_twin(any);
  const model::Layout layout = model::make_layout(c.shape, {1, 1});
  model::Reference model(layout, initial_weights(layout, c.seed));
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
    model.update(gradient, adamw_of(c), s + 1);
  }
  reference.weights = named(layout, model.weights());
  return reference;
}

}  // namespace minitaw::engine
