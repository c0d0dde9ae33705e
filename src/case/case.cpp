// SPDX-License-Identifier: BSD-3-Clause
#include "case/case.hpp"
#include <algorithm>
#include <fmt/ranges.h>

namespace minitaw {
void set_schedule(Case& c, const std::string& text) {
  const schedule::Spec spec = schedule::parse_spec(text);
  c.schedule = schedule::to_text(spec);
  c.shape.slices = schedule::number_of(spec, "slices");
  c.shape.even_slices = spec.value("cut") == "even";
}

std::string ffn_text(const model::Shape& shape) {
  const auto& ffn = shape.ffn;
  const bool equal = std::ranges::all_of(ffn, [&](std::int64_t f) { return f == ffn.front(); });
  return equal && !ffn.empty() ? fmt::format("{}", ffn.front())
                               : fmt::format("{}", fmt::join(ffn, ","));
}

std::string ranks_text(int ranks, int replicas) {
  return replicas > 1 ? fmt::format("{}x{}", replicas, ranks / replicas) : fmt::format("{}", ranks);
}

std::int64_t micro_batch_of(const Case& c, int rank) {
  return c.micro_batch_per_rank.empty() ? c.shape.micro_batch
                                        : c.micro_batch_per_rank[static_cast<std::size_t>(rank)];
}

model::Shape shape_of_rank(const Case& c, int rank) {
  model::Shape shape = c.shape;
  shape.micro_batch = micro_batch_of(c, rank);
  shape.context.index = rank % shape.context.count;
  return shape;
}

std::int64_t sequences_of_step(const Case& c) {
  return first_sequence(c, c.micro_batches);
}

double tokens_of_step(const Case& c) {
  return static_cast<double>(sequences_of_step(c) * c.shape.seq);
}

int sharers_of(const Case& c) {
  return c.ranks / c.shape.context.count;
}

std::int64_t first_sequence(const Case& c, int micro_batch) {
  if (c.micro_batch_per_rank.empty())
    return micro_batch * c.shape.micro_batch;
  const int each = c.micro_batches / sharers_of(c), n = c.shape.context.count;
  const auto size = [&](int group) { return micro_batch_of(c, group * n); };
  const int group = micro_batch / each;
  std::int64_t before = 0;
  for (int g = 0; g < group; ++g)
    before += each * size(g);
  return group == sharers_of(c) ? before : before + micro_batch % each * size(group);
}

std::string micro_batch_text(const Case& c) {
  return c.micro_batch_per_rank.empty() ? fmt::format("{}", c.shape.micro_batch)
                                        : fmt::format("{}", fmt::join(c.micro_batch_per_rank, ","));
}

Case on_one_rank(Case c) {
  if (!c.micro_batch_per_rank.empty()) {
    c.micro_batches = static_cast<int>(sequences_of_step(c));
    c.shape.micro_batch = 1;
    c.micro_batch_per_rank.clear();
  }
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
