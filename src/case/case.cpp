// SPDX-License-Identifier: BSD-3-Clause
#include "case/case.hpp"
#include <fmt/format.h>

namespace minitaw {
void set_schedule(Case& c, const std::string& text) {
  const schedule::Spec spec = schedule::parse_spec(text);
  c.schedule = schedule::to_text(spec);
  c.shape.slices = schedule::number_of(spec, "slices");
  c.shape.even_slices = spec.value("cut") == "even";
}

std::string ranks_text(int ranks, int replicas) {
  return replicas > 1 ? fmt::format("{}x{}", replicas, ranks / replicas) : fmt::format("{}", ranks);
}

model::Shape shape_of_rank(const Case& c, int rank) {
  model::Shape shape = c.shape;
  shape.context.index = rank % shape.context.count;
  return shape;
}

std::int64_t sequences_of_step(const Case& c) {
  return c.micro_batches * c.shape.micro_batch;
}

double tokens_of_step(const Case& c) {
  return sequences_of_step(c) * c.shape.seq;
}

int sharers_of(const Case& c) {
  return c.ranks / c.shape.context.count;
}

Case on_one_rank(Case c) {
  c.ranks = 1;
  c.groups = topology::Groups({1});
  c.replicas = 1;
  c.shape.context = {};
  c.shape.key_parts = 1;
  c.shape.slices = 1;
  c.shape.even_slices = false;
  c.shape.fp32_key_gradients = false;
  return c;
}

schedule::Request request_of(const Case& c) {
  return {schedule::parse_spec(c.schedule),
      c.groups,
      c.micro_batches,
      c.shape.layers,
      c.replicas,
      c.clip_norm > 0,
      c.folder,
      c.shape.context.count,
      c.shape.key_parts,
      c.shape.shares_sequences() ? model::block_costs(c.shape) : model::BlockCosts()};
}
}  // namespace minitaw
