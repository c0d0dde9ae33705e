#include "schedule/frame.hpp"

#include <algorithm>

namespace minitaw::schedule {
namespace {

Action action(Kind kind, int tick, Payload payload, int shard = -1, Part part = {}) {
  Action a;
  a.kind = kind;
  a.tick = tick;
  a.payload = payload;
  a.shard = shard;
  a.part = static_cast<std::int16_t>(part.index);
  a.parts = static_cast<std::int16_t>(part.count);
  return a;
}

void combine_ends(Draft& draft, int tick, Kind kind, Payload payload, Value value) {
  Action a = action(kind, tick, payload);
  a.communicator = draft.world();
  draft.collective(tick, Phase::finish, a, std::vector<Value>(draft.ranks(), value));
}

/// Each shard's gradient as soon as the last contribution of its own copy is in it.
void sum_shards_over_copies(Draft& draft, int rank, int tick) {
  const std::vector<int> last = draft.last_use_of_totals(rank);
  std::vector<std::pair<int, int>> by_time;  // tick, shard
  for (int s = 0; s < draft.shards(); ++s)
    if (const Value total = draft.total(rank, s); total.valid())
      by_time.emplace_back(std::min(last[total.id], tick), s);
  std::ranges::stable_sort(by_time);
  for (const auto& [when, s] : by_time)
    draft.sum_over_copies(rank, when, Phase::give_last,
                          action(Kind::all_reduce, when, Payload::gradient, s, draft.home_part(rank)),
                          draft.total(rank, s));
}

/// What this rank updates of the ends, or all that it holds.
Part ends_part(const Draft& draft, int rank, bool sliced) {
  if (draft.ends_split()) return {draft.ends_slice(rank), 2};
  return sliced ? Part{rank, draft.ranks()} : Part{};
}

void update(Draft& draft, int rank, int tick, Part ends) {
  for (int s = 0; s < draft.shards(); ++s)
    if (const Value home = draft.home(rank, s); home.valid())
      draft.add(rank, Phase::finish, action(Kind::update, tick, Payload::weights, s),
                {home, draft.total(rank, s)});
  if (draft.holds_ends(rank))
    draft.add(rank, Phase::finish, action(Kind::update, tick, Payload::ends, ends.index),
              {Draft::ends(), Draft::ends_total()});
}

void close_rank(Draft& draft, int rank, int tick, bool sliced) {
  const Part ends = ends_part(draft, rank, sliced);
  if (draft.copies() > 1) {
    sum_shards_over_copies(draft, rank, tick);
    if (draft.holds_ends(rank))
      draft.sum_over_copies(rank, tick, Phase::finish,
                            action(Kind::all_reduce, tick, Payload::ends_gradient, -1, ends),
                            Draft::ends_total());
  }
  update(draft, rank, tick, ends);
}

}  // namespace

void close_step(Draft& draft, int tick, EndsUpdate ends) {
  const bool together = draft.ranks() > 1 && !draft.ends_split();
  const bool sliced = together && ends == EndsUpdate::sliced;
  if (!draft.ends_split()) draft.set_ends_slices(sliced ? draft.ranks() : 1);
  if (together)
    combine_ends(draft, tick, sliced ? Kind::reduce_scatter : Kind::all_reduce, Payload::ends_gradient,
                 Draft::ends_total());
  for (int r = 0; r < draft.ranks(); ++r) close_rank(draft, r, tick, sliced);
  if (sliced) combine_ends(draft, tick, Kind::all_gather, Payload::ends, Draft::ends());
  for (int r = 0; r < draft.ranks(); ++r)
    draft.add(r, Phase::finish, action(Kind::join, tick, Payload::none), {});
}

}  // namespace minitaw::schedule
