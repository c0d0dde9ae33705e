#include "schedule/judge_step.hpp"

namespace minitaw::schedule::judged {

Weights expected(const Program& p) {
  const std::vector<int> embedding = places(p, End::embedding), head = places(p, End::head);
  std::vector<Buffer> weights, gradients(p.shards, Buffer(p.shard_parts));
  for (int s = 0; s < p.shards; ++s) weights.push_back(first_weights(s, p.shard_parts));
  Buffer ends = first_ends(p.ends_slices), ends_gradient(per_slice * p.ends_slices);
  for (int m = 0; m < p.micro_batches; ++m) {
    Number x = embed(at_places(ends, embedding), m);
    std::vector<Number> kept;
    for (int s = 0; s < p.shards; ++s) {
      kept.push_back(x);
      x = forward(x, weights[s], s);
    }
    for (const int i : head) ends_gradient[i] += head_gradient(x, at_places(ends, head), m, i);
    x = loss(x, at_places(ends, head), m);
    for (int s = p.shards - 1; s >= 0; --s) {
      for (int i = 0; i < p.shard_parts; ++i) gradients[s][i] += weight_gradient(x, kept[s], s, i);
      x = backward(x, kept[s], weights[s], s);
    }
    for (const int i : embedding) ends_gradient[i] += embed_gradient(x, m, i);
  }
  for (int s = 0; s < p.shards; ++s)
    for (int i = 0; i < p.shard_parts; ++i) weights[s][i] = update(weights[s][i], gradients[s][i]);
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = update(ends[i], ends_gradient[i]);
  return {weights, ends};
}

}  // namespace minitaw::schedule::judged
