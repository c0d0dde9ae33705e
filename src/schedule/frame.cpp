#include "schedule/frame.hpp"

namespace minitaw::schedule {
namespace {

Action action(Kind kind, int tick, Payload payload, int shard = -1) {
  Action a;
  a.kind = kind;
  a.tick = tick;
  a.payload = payload;
  a.shard = shard;
  return a;
}

void combine_ends(Draft& draft, int tick, Kind kind, Payload payload, Value value) {
  Action a = action(kind, tick, payload);
  a.communicator = draft.world();
  draft.collective(tick, Phase::finish, a, std::vector<Value>(draft.ranks(), value));
}

void update(Draft& draft, int rank, int tick, int ends_slice) {
  for (int s = 0; s < draft.shards(); ++s)
    if (const Value home = draft.home(rank, s); home.valid())
      draft.add(rank, Phase::finish, action(Kind::update, tick, Payload::weights, s),
                {home, draft.total(rank, s)});
  draft.add(rank, Phase::finish, action(Kind::update, tick, Payload::ends, ends_slice),
            {Draft::ends(), Draft::ends_total()});
}

}  // namespace

void open_step(Draft& draft) {
  for (int r = 0; r < draft.ranks(); ++r) {
    for (int s = 0; s < draft.shards(); ++s)
      if (draft.home(r, s).valid())
        draft.add(r, Phase::prepare, action(Kind::zero, 0, Payload::gradient, s), {draft.total(r, s)});
    draft.add(r, Phase::prepare, action(Kind::zero, 0, Payload::ends_gradient), {Draft::ends_total()});
  }
}

void close_step(Draft& draft, int tick, EndsUpdate ends) {
  const bool sliced = ends == EndsUpdate::sliced && draft.ranks() > 1;
  draft.set_ends_slices(sliced ? draft.ranks() : 1);
  if (draft.ranks() > 1)
    combine_ends(draft, tick, sliced ? Kind::reduce_scatter : Kind::all_reduce, Payload::ends_gradient,
                 Draft::ends_total());
  for (int r = 0; r < draft.ranks(); ++r) update(draft, r, tick, sliced ? r : 0);
  if (sliced) combine_ends(draft, tick, Kind::all_gather, Payload::ends, Draft::ends());
  for (int r = 0; r < draft.ranks(); ++r)
    draft.add(r, Phase::finish, action(Kind::join, tick, Payload::none), {});
}

}  // namespace minitaw::schedule
