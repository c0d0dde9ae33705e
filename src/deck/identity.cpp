#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "deck/sequences.hpp"

namespace minitaw::deck {

std::string ffn_text(const model::Shape& shape) {
  const auto& ffn = shape.ffn;
  const bool equal = std::ranges::all_of(ffn, [&](std::int64_t f) { return f == ffn.front(); });
  return equal && !ffn.empty() ? fmt::format("{}", ffn.front()) : fmt::format("{}", fmt::join(ffn, ","));
}

std::string ranks_text(int ranks, int replicas) {
  return replicas > 1 ? fmt::format("{}x{}", replicas, ranks / replicas) : fmt::format("{}", ranks);
}

std::string identity(const Case& c) {
  const model::Shape& s = c.shape;
  const auto unless_auto = [](const char* key, const std::string& value) {
    return value == "auto" ? std::string() : fmt::format(" {}={}", key, value);
  };
  const std::string repeats = c.repeats == 1 ? "" : fmt::format(" repeats={}", c.repeats);
  const std::string replicas = c.replicas == 1 ? "" : fmt::format(" replicas={}", c.replicas);
  return fmt::format(
      "schedule={} ranks={} groups={} layers={} hidden={} heads={} kv_heads={} vocab={} ffn={} dtype={} "
      "recompute={} "
      "seq={} micro_batch={} micro_batches={} steps={} warmup={} seed={} learning_rate={} data={}{}{}{}{}",
      c.schedule, c.ranks, c.groups.text(), s.layers, s.hidden, s.heads, s.kv_heads, s.vocab, ffn_text(s),
      name_of(s.dtype), name_of(s.recompute), s.seq, micro_batch_text(c), c.micro_batches, c.steps, c.warmup,
      c.seed, c.learning_rate, c.data, replicas, repeats, unless_auto("attention", c.attention),
      unless_auto("transport", c.transport));
}

}  // namespace minitaw::deck
