#include "schedule/play_contents.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::schedule {
namespace {

using Holds = Content::Holds;

// What is computed once for each (shard, micro-batch), and for each micro-batch at the ends.
constexpr std::uint8_t forward_done = 1, input_done = 2, weight_done = 4;
constexpr std::uint8_t embed_done = 1, loss_done = 2, embed_backward_done = 4;
constexpr std::uint8_t all_done = 7;

std::string describe(const Content& c) {
  switch (c.holds) {
  case Holds::nothing:
    return "nothing";
  case Holds::weights:
    return fmt::format("the {}weights of shard {}", c.updated ? "updated " : "", c.shard);
  case Holds::gradient:
    return fmt::format("{} gradient contributions", c.sum->size());
  case Holds::kept:
    return fmt::format("what shard {} kept of micro-batch {}", c.shard, c.micro_batch);
  case Holds::stash:
    return fmt::format("what B left of shard {} and micro-batch {}", c.shard, c.micro_batch);
  case Holds::hidden:
    return fmt::format("micro-batch {} before shard {}", c.micro_batch, c.shard);
  case Holds::hidden_gradient:
    return fmt::format("the gradient of micro-batch {} behind shard {}", c.micro_batch, c.shard);
  case Holds::ends:
    return c.slices ? "ends that are being updated" : "the ends";
  }
  return "";
}

}  // namespace

Contents::Contents(const Program& program) : program_(program) {
  done_.resize((static_cast<std::size_t>(program.shards) + 1) * program.micro_batches);
  for (const RankProgram& rank : program.ranks) {
    std::size_t count = 0;
    std::array<std::size_t, slot_classes>& first = first_.emplace_back();
    for (int c = 0; c < slot_classes; ++c) {
      first[c] = count;
      count += rank.slots[c];
    }
    std::vector<Content>& slots = slots_.emplace_back(count);
    for (std::size_t h = 0; h < rank.homes.size(); ++h) {
      slots[first[index(SlotClass::home)] + h].holds = Holds::weights;
      slots[first[index(SlotClass::home)] + h].shard = rank.homes[h];
    }
    for (int e = 0; e < rank.slots[index(SlotClass::ends)]; ++e)
      slots[first[index(SlotClass::ends)] + e].holds = Holds::ends;
  }
}

void Contents::fail(Rule rule, Place p, const std::string& what) const {
  detail::refuse(rule, program_, p.rank, p.action, what);
}

void Contents::unexpected(Place p, Slot slot, const std::string& wanted) const {
  fail(Rule::fresh_reads, p,
       fmt::format("{} holds {}, expected {}", detail::name_of(slot), describe(content(p.rank, slot)),
                   wanted));
}

void Contents::local(Place p) {
  switch (at(p).kind) {
  case Kind::embed:
    return embed(p);
  case Kind::forward:
    return forward(p);
  case Kind::loss:
    return loss(p);
  case Kind::backward:
    return backward(p);
  case Kind::backward_input:
    return backward_input(p);
  case Kind::backward_weight:
    return backward_weight(p);
  case Kind::embed_backward:
    return embed_backward(p);
  case Kind::update:
    return at(p).slots[0].cls == SlotClass::ends ? update_ends(p) : update(p);
  case Kind::zero:
    return zero(p);
  case Kind::accumulate:
    return accumulate(p);
  default:
    return;
  }
}

// What must be there

void Contents::need_weights(Place p, Slot slot) const {
  const Content& c = content(p.rank, slot);
  if (c.holds != Holds::weights || c.shard != at(p).shard || c.updated)
    unexpected(p, slot, fmt::format("the weights of shard {}", at(p).shard));
}

void Contents::need_ends(Place p, Slot slot) const {
  if (content(p.rank, slot).slices) unexpected(p, slot, "the ends before their update");
}

void Contents::need_kept(Place p, Slot slot, Holds holds) const {
  const Content& c = content(p.rank, slot);
  const Content wanted{holds, false, at(p).shard, at(p).micro_batch, -1, {}, {}};
  if (c.holds != holds || c.shard != wanted.shard || c.micro_batch != wanted.micro_batch)
    unexpected(p, slot, describe(wanted));
}

void Contents::need_hidden(Place p, Slot slot, Holds holds, std::int32_t shard) const {
  const Content& c = content(p.rank, slot);
  const Content wanted{holds, false, shard, at(p).micro_batch, -1, {}, {}};
  if (c.holds != holds || c.shard != shard || c.micro_batch != wanted.micro_batch)
    unexpected(p, slot, describe(wanted));
}

const Sum& Contents::need_sum(Place p, Slot slot) const {
  const Content& c = content(p.rank, slot);
  const bool zeroed = slot.cls == SlotClass::total || slot.cls == SlotClass::ends_total;
  if (c.holds != Holds::gradient && zeroed)
    fail(Rule::exact_gradients, p, fmt::format("{} was not zeroed in this step", detail::name_of(slot)));
  if (c.holds != Holds::gradient) unexpected(p, slot, "a gradient");
  return *c.sum;
}

void Contents::once(Place p, std::int32_t part, std::uint8_t work) {
  std::uint8_t& done = done_[static_cast<std::size_t>(part) * program_.micro_batches + at(p).micro_batch];
  if ((done & work) != 0) fail(Rule::exact_gradients, p, "has been computed before in this step");
  done |= work;
}

// Compute

void Contents::embed(Place p) {
  const Action& a = at(p);
  need_ends(p, a.slots[1]);
  once(p, program_.shards, embed_done);
  content(p.rank, a.slots[0]) = {Holds::hidden, false, 0, a.micro_batch, -1, {}, {}};
}

void Contents::forward(Place p) {
  const Action& a = at(p);
  need_weights(p, a.slots[0]);
  need_hidden(p, a.slots[2], Holds::hidden, a.shard);
  once(p, a.shard, forward_done);
  content(p.rank, a.slots[1]) = {Holds::kept, false, a.shard, a.micro_batch, -1, {}, {}};
  content(p.rank, a.slots[2]).shard = a.shard + 1;
}

void Contents::loss(Place p) {
  const Action& a = at(p);
  need_hidden(p, a.slots[0], Holds::hidden, program_.shards);
  need_ends(p, a.slots[1]);
  once(p, program_.shards, loss_done);
  content(p.rank, a.slots[0]).holds = Holds::hidden_gradient;
  content(p.rank, a.slots[0]).shard = program_.shards - 1;
  add_gradient(p, a.slots[2], Contribution::head);
}

void Contents::backward(Place p) {
  backward_input(p);
  once(p, at(p).shard, weight_done);
  add_gradient(p, at(p).slots[3], at(p).shard);
}

void Contents::backward_input(Place p) {
  const Action& a = at(p);
  need_weights(p, a.slots[0]);
  need_kept(p, a.slots[1], Holds::kept);
  need_hidden(p, a.slots[2], Holds::hidden_gradient, a.shard);
  once(p, a.shard, input_done);
  content(p.rank, a.slots[2]).shard = a.shard - 1;
  if (a.kind == Kind::backward_input)
    content(p.rank, a.slots[3]) = {Holds::stash, false, a.shard, a.micro_batch, -1, {}, {}};
}

void Contents::backward_weight(Place p) {
  const Action& a = at(p);
  need_kept(p, a.slots[0], Holds::kept);
  need_kept(p, a.slots[1], Holds::stash);
  once(p, a.shard, weight_done);
  add_gradient(p, a.slots[2], a.shard);
}

void Contents::embed_backward(Place p) {
  const Action& a = at(p);
  need_hidden(p, a.slots[0], Holds::hidden_gradient, -1);
  once(p, program_.shards, embed_backward_done);
  add_gradient(p, a.slots[1], Contribution::embedding);
}

void Contents::add_gradient(Place p, Slot slot, std::int32_t part) {
  const Action& a = at(p);
  Content& target = content(p.rank, slot);
  if (slot.cls == SlotClass::gradient && !a.accumulates)
    target = {Holds::gradient, false, -1, -1, -1, std::make_shared<Sum>(), {}};
  Sum one;
  one.add({part, a.micro_batch});
  grow(p, slot, one);
}

void Contents::grow(Place p, Slot slot, const Sum& more) {
  const std::size_t bound =
      static_cast<std::size_t>(slot.cls == SlotClass::ends_total ? 2 : 1) * program_.micro_batches;
  if (need_sum(p, slot).size() + more.size() > bound)
    fail(Rule::exact_gradients, p,
         fmt::format("adds more contributions to {} than there are micro-batches", detail::name_of(slot)));
  Content& target = content(p.rank, slot);
  if (target.sum.use_count() > 1) target.sum = std::make_shared<Sum>(*target.sum);
  target.sum->add(more);
}

void Contents::update(Place p) {
  const Action& a = at(p);
  need_weights(p, a.slots[0]);
  if (const std::string defect = need_sum(p, a.slots[1]).defect({a.shard}, program_.micro_batches);
      !defect.empty())
    fail(Rule::exact_gradients, p, fmt::format("in {}, {}", detail::name_of(a.slots[1]), defect));
  content(p.rank, a.slots[0]).updated = true;
}

void Contents::update_ends(Place p) {
  const Action& a = at(p);
  const Sum& sum = need_sum(p, a.slots[1]);
  if (const int slice = content(p.rank, a.slots[1]).slice; slice >= 0 && slice != a.shard)
    fail(Rule::exact_gradients, p,
         fmt::format("{} holds the sum of slice {} only", detail::name_of(a.slots[1]), slice));
  const std::string defect =
      sum.defect({Contribution::embedding, Contribution::head}, program_.micro_batches);
  if (!defect.empty())
    fail(Rule::exact_gradients, p, fmt::format("in {}, {}", detail::name_of(a.slots[1]), defect));
  auto& slices = content(p.rank, a.slots[0]).slices;
  slices = slices ? std::make_shared<std::vector<bool>>(*slices)
                  : std::make_shared<std::vector<bool>>(program_.ends_slices);
  if ((*slices)[a.shard]) fail(Rule::exact_gradients, p, "updates the slice a second time");
  (*slices)[a.shard] = true;
}

void Contents::zero(Place p) {
  content(p.rank, at(p).slots[0]) = {Holds::gradient, false, -1, -1, -1, std::make_shared<Sum>(), {}};
}

void Contents::accumulate(Place p) {
  need_payload(p);
  const Action& a = at(p);
  const Content source = content(p.rank, a.slots[0]);
  need_sum(p, a.slots[1]);
  if (source.slice != content(p.rank, a.slots[1]).slice)
    fail(Rule::exact_gradients, p, "adds ends gradients of which different slices count");
  grow(p, a.slots[1], *source.sum);
}

// Communication

/// slots[0] holds what the action says that it moves.
void Contents::need_payload(Place p) const {
  const Action& a = at(p);
  const Slot slot = a.slots[0];
  const Content& c = content(p.rank, slot);
  switch (a.payload) {
  case Payload::weights:
    if (c.holds != Holds::weights || c.shard != a.shard)
      unexpected(p, slot, fmt::format("the weights of shard {}", a.shard));
    return;
  case Payload::gradient:
    if (const Contribution* foreign = need_sum(p, slot).foreign(a.shard); foreign != nullptr)
      fail(Rule::exact_gradients, p,
           fmt::format("{} holds a gradient of {} (micro-batch {}), expected only shard {}",
                       detail::name_of(slot), part_name(foreign->part), foreign->micro_batch, a.shard));
    return;
  case Payload::activation:
    return need_hidden(p, slot, Holds::hidden, a.shard);
  case Payload::activation_grad:
    return need_hidden(p, slot, Holds::hidden_gradient, a.shard - 1);
  case Payload::ends_gradient:
    need_sum(p, slot);
    return;
  default:
    return;
  }
}

void Contents::message(Place send, Place receive) {
  need_payload(send);
  content(receive.rank, at(receive).slots[0]) = content(send.rank, at(send).slots[0]);
}

void Contents::collective(std::span<const Place> calls) {
  const Action& a = at(calls.front());
  if (a.kind == Kind::reduce_scatter) return reduce_scatter(calls);
  if (a.kind == Kind::all_gather) return all_gather(calls);
  const auto root = std::ranges::find(calls, a.peer, &Place::rank);
  if (a.kind == Kind::broadcast) {
    for (const Place call : calls)
      if (call.rank != a.peer) message(*root, call);
    return;
  }
  const std::shared_ptr<Sum> sum = union_of(calls);
  for (const Place call : calls)
    if (a.kind == Kind::all_reduce || call.rank == a.peer) content(call.rank, at(call).slots[0]).sum = sum;
}

std::shared_ptr<Sum> Contents::union_of(std::span<const Place> calls) const {
  auto sum = std::make_shared<Sum>();
  const bool ends = at(calls.front()).payload == Payload::ends_gradient;
  const std::size_t bound = static_cast<std::size_t>(ends ? 2 : 1) * program_.micro_batches;
  for (const Place call : calls) {
    need_payload(call);
    const Slot slot = at(call).slots[0];
    const Content& c = content(call.rank, slot);
    if (c.holds != Holds::gradient) fail(Rule::fresh_reads, call, "only gradients can be added up");
    if (c.slice >= 0)
      fail(Rule::exact_gradients, call,
           fmt::format("{} holds the sum of slice {} only", detail::name_of(slot), c.slice));
    if (sum->size() + c.sum->size() > bound)
      fail(Rule::exact_gradients, call, "the sum has more contributions than there are micro-batches");
    sum->add(*c.sum);
  }
  return sum;
}

void Contents::reduce_scatter(std::span<const Place> calls) {
  const std::shared_ptr<Sum> sum = union_of(calls);
  if (at(calls.front()).payload != Payload::ends_gradient ||
      static_cast<int>(calls.size()) != program_.ends_slices)
    fail(Rule::exact_gradients, calls.front(),
         fmt::format("only the {} slices of the ends can be scattered, over as many ranks",
                     program_.ends_slices));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Content& c = content(calls[i].rank, at(calls[i]).slots[0]);
    c.sum = sum;
    c.slice = static_cast<int>(i);
  }
}

void Contents::all_gather(std::span<const Place> calls) {
  if (at(calls.front()).payload != Payload::ends || static_cast<int>(calls.size()) != program_.ends_slices)
    fail(Rule::fresh_reads, calls.front(),
         fmt::format("only the {} slices of the ends can be gathered, from as many ranks",
                     program_.ends_slices));
  const auto whole = std::make_shared<std::vector<bool>>(program_.ends_slices, true);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Content& c = content(calls[i].rank, at(calls[i]).slots[0]);
    if (!c.slices || !(*c.slices)[i])
      fail(Rule::fresh_reads, calls[i], fmt::format("slice {} is not updated yet", i));
    c.slices = whole;
  }
}

void Contents::check_end() const {
  for (std::size_t i = 0; i < done_.size(); ++i)
    if (done_[i] != all_done) {
      const int part = static_cast<int>(i) / program_.micro_batches;
      throw detail::Refusal{
          {Rule::exact_gradients, -1, -1,
           fmt::format("the program: micro-batch {} is not computed forward and backward through {}",
                       static_cast<int>(i) % program_.micro_batches,
                       part == program_.shards ? "the ends" : part_name(part))}};
    }
  for (int r = 0; r < static_cast<int>(program_.ranks.size()); ++r) {
    const RankProgram& rank = program_.ranks[r];
    for (int h = 0; h < static_cast<int>(rank.homes.size()); ++h)
      if (const Content& c = content(r, {SlotClass::home, static_cast<std::int16_t>(h)}); !c.updated)
        fail(Rule::exact_gradients, {r, -1}, fmt::format("h{} still holds {} at the end", h, describe(c)));
    for (int e = 0; e < rank.slots[index(SlotClass::ends)]; ++e) {
      const Content& c = content(r, {SlotClass::ends, static_cast<std::int16_t>(e)});
      if (!c.slices || std::ranges::find(*c.slices, false) != c.slices->end())
        fail(Rule::exact_gradients, {r, -1}, fmt::format("e{} is not updated as a whole at the end", e));
    }
  }
}

}  // namespace minitaw::schedule
