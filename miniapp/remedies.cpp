// SPDX-License-Identifier: BSD-3-Clause
// Finds what makes a case fit that does not.
#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include "base/error.hpp"
#include "case_plan.hpp"
#include "deck/keys.hpp"
#include "model/layout.hpp"

namespace minitaw::app {
namespace {
/// Changes a key, the less the smaller n is, from 2 on; returns false where n means nothing.
using Change = bool (*)(Case& c, int n);

constexpr int most_times = 16;  ///< times the ranks, and slices

bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}

bool recompute_more(Case& c, int n) {
  using enum model::Recompute;
  const model::Recompute less = n == 2 ? keep_attention : block;
  if (n > 3 || less >= c.shape.recompute)
    return false;
  c.shape.recompute = less;
  return true;
}

/// Smaller micro-batches, and as many more of them.
bool split_micro_batches(Case& c, int n) {
  if (c.shape.micro_batch % n != 0)
    return false;
  c.shape.micro_batch /= n;
  c.micro_batches *= n;
  return true;
}

/// Of a pipeline that can pass slices.
bool slice_sequences(Case& c, int n) {
  schedule::Spec spec = schedule::parse_spec(c.schedule);
  const auto& options = schedule::entry_of(spec.name).options;
  if (!is_power_of_two(n) || n * c.shape.slices > most_times ||
      std::ranges::count(options, "slices", &schedule::OptionDoc::name) == 0)
    return false;
  spec.options["slices"] = std::to_string(n * c.shape.slices);
  set_schedule(c, to_text(spec));
  return true;
}

/// More ranks that share a sequence.
bool share_sequences(Case& c, int n) {
  c.shape.context.count *= n;
  return is_power_of_two(n) && c.shape.context.count <= std::ranges::min(c.groups.sizes());
}

/// As many more groups of the same sizes, with as many more micro-batches.
bool add_ranks(Case& c, int n) {
  if (!is_power_of_two(n) || n > most_times)
    return false;
  std::vector<int> sizes;
  for (int copy = 0; copy < n; ++copy)
    sizes.insert(sizes.end(), c.groups.sizes().begin(), c.groups.sizes().end());
  c.groups = topology::Groups(sizes);
  c.ranks *= n;
  c.micro_batches *= n;
  return true;
}

/// In the order in which they are tried together: what costs least time comes first.
constexpr Change all_changes[] = {
    recompute_more, split_micro_batches, slice_sequences, share_sequences, add_ranks};

/// The least change first.
std::vector<Case> changed_by(Change change, const Case& c) {
  const auto last = std::max<std::int64_t>({most_times, c.ranks, c.shape.micro_batch});
  std::vector<Case> all;
  for (int n = 2; n <= last; ++n)
    if (Case changed = c; change(changed, n))
      all.push_back(changed);
  return all;
}

/// Bytes of the rank that needs most; nothing if the case cannot be run.
std::optional<std::uint64_t> need_of(const Case& c) {
  try {
    model::check(c.shape);
    schedule::check(request_of(c));
    return worst_on_device(c, schedule::build(request_of(c))).total();
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// The keys that must be set to get from one case to the other.
Remedy remedy_of(const Case& c, const Case& changed, std::uint64_t total) {
  const auto [least, most] = std::ranges::minmax(changed.groups.sizes());
  Remedy remedy{{}, total};
  for (const deck::Setting& key : deck::columns()) {
    std::string value = minitaw::to_text(key.value(changed));
    if (!key.form.store || value == minitaw::to_text(key.value(c)))
      continue;
    if (key.name == "groups" && least == most)
      value = fmt::format("{}", changed.groups.count());
    remedy.settings.emplace_back(key.name, value);
  }
  return remedy;
}

/// One change after the other, each as far as it helps, until all together suffice.
std::optional<Remedy> together(const Case& c, std::uint64_t available) {
  std::uint64_t least = need_of(c).value();
  Case best = c;
  for (const Change change : all_changes)
    for (const Case& changed : changed_by(change, best)) {
      const auto need = need_of(changed);
      if (!need || *need >= least)
        continue;
      best = changed;
      least = *need;
      if (least <= available)
        return remedy_of(c, best, least);
    }
  return std::nullopt;
}
}  // namespace

std::vector<Remedy> remedies_of(const Case& c, std::uint64_t available) {
  std::vector<Remedy> found;
  for (const Change change : all_changes)
    for (const Case& changed : changed_by(change, c))
      if (const auto need = need_of(changed); need && *need <= available) {
        found.push_back(remedy_of(c, changed, *need));
        break;
      }
  if (found.empty())
    if (const auto all = together(c, available))
      found.push_back(*all);
  return found;
}
}  // namespace minitaw::app
