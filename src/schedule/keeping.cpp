// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/keeping.hpp"
#include <algorithm>
#include <utility>

namespace minitaw::schedule {
namespace {
const std::vector<OptionDoc> keeping_options = {{"reshard",
                                                    {"world", "group", "none"},
                                                    "where weights stay between visits: with their "
                                                    "owners only; one copy in each group (ZeRO++ "
                                                    "hpZ); a copy on every rank"},
    {"fetch", {"micro_batch", "step"}, "how often weights that stay are fetched from their owners"},
    {"reduce",
        {"world", "group", "none"},
        "where each micro-batch's gradient is summed: at its owner; in its group; on its rank. The "
        "rest is summed once a step"}};

Copies copies_of(const Spec& spec, const char* option) {
  const std::string value = spec.value(option);
  if (value.empty())
    return Copies::none;
  return value == "group" ? Copies::per_group : Copies::per_rank;
}
}  // namespace

Keeping keeping_of(const Request& request) {
  Keeping keeping{copies_of(request.spec, "reshard"), request.spec.options.contains("fetch")};
  if (request.micro_batches_of_rank() > 1)  // sums of one micro-batch leave as they are
    keeping.sums = copies_of(request.spec, "reduce");
  return keeping;
}

std::vector<OptionDoc> with_keeping(std::vector<OptionDoc> options) {
  options.insert(options.end(), keeping_options.begin(), keeping_options.end());
  return options;
}

KeptBuffers::KeptBuffers(Builder& builder, std::vector<int> ranks, const Keeping& keeping)
    : builder_(builder),
      ranks_(std::move(ranks)),
      keeping_(keeping),
      copies_(builder.shards()),
      sums_(builder.shards()) {}

void KeptBuffers::divide(int rank, Part part) {
  if (keeping_.weights == Copies::per_group)
    builder_.keep_part(rank, SlotClass::kept, part);
  if (keeping_.sums == Copies::per_group)
    builder_.keep_part(rank, SlotClass::partial, part);
}

RankBuffers& KeptBuffers::copies_for(const Visit& visit) {
  RankBuffers& copies = copies_[visit.shard];
  if (keeping_.weights == Copies::none || (!visit.backward() && !keeping_.all_step))
    copies.clear();
  return copies;
}

const RankBuffers& KeptBuffers::sums_of(int shard) {
  if (sums_[shard].empty())
    sums_[shard] = builder_.new_buffers(ranks_, SlotClass::partial);
  return sums_[shard];
}

RankBuffers KeptBuffers::load_sums(int shard, int tick, bool inside) {
  const Action load = make_action(Kind::load, tick, Payload::gradient, shard);
  RankBuffers loaded = builder_.new_buffers(ranks_, SlotClass::gradient);
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    builder_.local(ranks_[i], Phase::push_intra, load, inside, sums_of(shard)[i], loaded[i]);
  return loaded;
}

void KeptBuffers::add_to_sums(
    const std::vector<int>& ranks, int shard, int tick, const RankBuffers& gradients, bool last) {
  const Action add = make_action(Kind::accumulate, tick, Payload::gradient, shard);
  const Action load = make_action(Kind::load, tick, Payload::gradient, shard);
  for (const int r : ranks) {
    const int i = r - ranks_.front();
    builder_.local(r, Phase::push_intra, add, true, gradients[i], sums_of(shard)[i]);
    if (last)
      builder_.local(r, Phase::push_intra, load, true, sums_of(shard)[i], gradients[i]);
  }
}
}  // namespace minitaw::schedule
