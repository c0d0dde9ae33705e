#include "engine/reference.hpp"

#include <fmt/format.h>

#include "comm/local.hpp"
#include "model/reference.hpp"

namespace minitaw::engine {
namespace {

MakeTransport solo() {
  return [](const schedule::Program&, model::Buffer) { return std::make_unique<comm::SoloTransport>(); };
}

}  // namespace

deck::Case serial_twin(const deck::Case& c) {
  deck::Case twin = c;
  twin.schedule = "serial";
  twin.ranks = 1;
  twin.groups = topology::Groups({1});
  return twin;
}

std::string reference_key(const deck::Case& c, int steps) {
  return fmt::format("{} steps={}", deck::identity(serial_twin(c)), steps);
}

double flops(const deck::Case& c, int steps) {
  const model::Flops per_token = model::flops_per_token(c.shape);
  return (per_token.matmul + per_token.attention_causal) * static_cast<double>(c.shape.tokens()) * c.micro_batches *
         steps;
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

}  // namespace minitaw::engine
