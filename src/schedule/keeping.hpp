// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <utility>
#include "schedule/visits.hpp"

/// What ranks keep of weights and gradients between the visits of a step, in schedules that move
/// weights. Between steps, everything is with its owners only.
namespace minitaw::schedule {
/// Who has the weights of a shard after a visit, or sums its gradient.
enum class Holder : std::uint8_t {
  owner,  ///< option `world` (FSDP2: reshard_after_forward = True)
  group,  ///< also every group, a part on each of its ranks (ZeRO++ hpZ, MiCS;
          ///< reshard_after_forward = n)
  rank,   ///< option `none`: also every rank, all of it (reshard_after_forward = False)
};

struct Keeping {
  Holder weights = Holder::owner;  ///< option reshard
  bool all_step = false;        ///< option fetch: weights of the first micro-batch serve all others
  Holder sums = Holder::owner;  ///< option reduce
};

Keeping keeping_of(const Request& request);
/// Reasons why an option has no effect; empty: there is none.
std::string one_rank(const Request& request);
std::string one_group(const Request& request);
/// A schedule's own options, then those of keeping_of().
std::vector<OptionDoc> with_keeping(std::vector<OptionDoc> options);

/// The buffers in which some consecutive ranks keep shards.
class KeptBuffers {
public:
  KeptBuffers(Builder& builder, Ranks ranks, const Keeping& keeping)
      : builder_(builder),
        ranks_(std::move(ranks)),
        keeping_(keeping),
        copies_(builder.shards()),
        sums_(builder.shards()) {}

  /// Makes a rank keep one part of what its group keeps.
  void divide(int rank, Part part) {
    if (keeping_.weights == Holder::group)
      builder_.keep_part(rank, SlotClass::kept, part);
    if (keeping_.sums == Holder::group)
      builder_.keep_part(rank, SlotClass::partial, part);
  }

  /// The ranks' copies of a visit's shard. If they are empty, the caller fetches the weights and
  /// puts copies there.
  RankBuffers& copies_for(const Visit& visit) {
    RankBuffers& copies = copies_[visit.shard];
    if (keeping_.weights == Holder::owner || (!visit.backward() && !keeping_.all_step))
      copies.clear();
    return copies;
  }

  /// Sums of a shard's gradient, one of each rank.
  const RankBuffers& sums_of(int shard) {
    if (sums_[shard].empty())
      sums_[shard] = builder_.new_buffers(ranks_, SlotClass::partial);
    return sums_[shard];
  }

  /// Emits new buffers with these sums, which may be reduced. `inside`: for a collective of a
  /// group.
  RankBuffers load_sums(int shard, int tick, bool inside) {
    const Action load = make_action(Kind::load, tick, Payload::gradient, shard);
    RankBuffers loaded = builder_.new_buffers(ranks_, SlotClass::gradient);
    for (const int i : indices(ranks_))
      builder_.local(ranks_[i], Phase::push_intra, load, inside, sums_of(shard)[i], loaded[i]);
    return loaded;
  }

  /// Adds the gradients on some of the ranks to their sums. With the `last` micro-batch, the
  /// buffers of the gradients get the sums.
  void add_to_sums(
      const Ranks& ranks, int shard, int tick, const RankBuffers& gradients, bool last) {
    const Action add = make_action(Kind::accumulate, tick, Payload::gradient, shard);
    const Action load = make_action(Kind::load, tick, Payload::gradient, shard);
    for (const int r : ranks) {
      const int i = r - ranks_.front();
      builder_.local(r, Phase::push_intra, add, true, gradients[i], sums_of(shard)[i]);
      if (last)
        builder_.local(r, Phase::push_intra, load, true, sums_of(shard)[i], gradients[i]);
    }
  }

private:
  Builder& builder_;
  Ranks ranks_;
  Keeping keeping_;
  std::vector<RankBuffers> copies_, sums_;  ///< by shard; empty while there are none
};
}  // namespace minitaw::schedule
