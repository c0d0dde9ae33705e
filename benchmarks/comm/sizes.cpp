#include "sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "deck/deck.hpp"
#include "engine/session.hpp"

namespace minitaw::bench {
namespace {

Size size_of(const deck::Case& c, const topology::Groups& groups) {
  const model::Layout layout = model::make_layout(c.shape, schedule::cut_of(engine::program_of(c)));
  const model::Shard& shard = *std::ranges::max_element(layout.shards, {}, &model::Shard::elements);
  const bool wide = c.shape.dtype == model::Dtype::fp32;
  return {
      fmt::format("shard of {} block{}, H = {}", shard.layers, shard.layers == 1 ? "" : "s", c.shape.hidden),
      shard.elements, wide ? comm::Scalar::fp32 : comm::Scalar::bf16, groups};
}

std::vector<Size> of_deck(const CommOptions& options, int ranks) {
  std::vector<Size> sizes;
  const deck::Deck deck = deck::read_deck(options.deck, options.overrides, {ranks, {ranks}, false});
  for (const deck::Case& c : deck.cases) {
    if (c.ranks != ranks) continue;
    const Size size = size_of(c, options.groups.value_or(c.groups));
    if (std::ranges::find(sizes, size) == sizes.end()) sizes.push_back(size);
  }
  if (sizes.empty())
    throw InputError(fmt::format("{}: no case uses the {} ranks of this job", options.deck, ranks));
  return sizes;
}

std::vector<Size> of_bytes(const CommOptions& options, int ranks) {
  std::vector<Size> sizes;
  for (const std::int64_t bytes : options.bytes)
    sizes.push_back(
        {"", (bytes + 3) / 4, comm::Scalar::fp32, options.groups.value_or(topology::Groups({ranks}))});
  return sizes;
}

void check(const Size& size, int ranks) {
  if (size.groups.ranks() != ranks)
    throw InputError(fmt::format("--groups {}: {} ranks, but the job has {}", size.groups.text(),
                                 size.groups.ranks(), ranks));
  if (size.elements > std::numeric_limits<int>::max())
    throw InputError(fmt::format("{} elements: MPI's own calls count in int, at most {}", size.elements,
                                 std::numeric_limits<int>::max()));
}

}  // namespace

std::vector<Size> sizes_of(const CommOptions& options, int ranks) {
  if (ranks < 2) throw InputError("one rank has nobody to talk to; use mpiexec -n 2 or more");
  std::vector<Size> sizes = options.deck.empty() ? of_bytes(options, ranks) : of_deck(options, ranks);
  for (const Size& size : sizes) check(size, ranks);
  std::ranges::stable_sort(sizes, {}, [](const Size& size) { return size.groups.sizes(); });
  return sizes;
}

}  // namespace minitaw::bench
