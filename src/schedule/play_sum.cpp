#include "schedule/play_sum.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::schedule {

std::string part_name(std::int32_t part) {
  if (part == Contribution::embedding) return "the embedding";
  return part == Contribution::head ? "the head" : fmt::format("shard {}", part);
}

void Sum::add(Contribution c) {
  complete_ = false;
  items_.push_back(c);
}

void Sum::add(const Sum& other) {
  complete_ = false;
  // By index: a sum may be added to itself.
  const std::size_t count = other.items_.size();
  for (std::size_t i = 0; i < count; ++i) items_.push_back(other.items_[i]);
}

const Contribution* Sum::foreign(std::int32_t part) const {
  const auto at = std::ranges::find_if(items_, [&](const Contribution& c) { return c.part != part; });
  return at == items_.end() ? nullptr : &*at;
}

std::string Sum::defect(const std::vector<std::int32_t>& parts, int micro_batches) const {
  if (complete_ && parts_ == parts) return "";
  std::vector<Contribution> wanted;
  for (const std::int32_t part : parts)
    for (int m = 0; m < micro_batches; ++m) wanted.push_back({part, m});
  std::vector<Contribution> held = items_;
  std::ranges::sort(wanted);
  std::ranges::sort(held);
  const auto [want, have] = std::ranges::mismatch(wanted, held);
  if (want == wanted.end() && have == held.end()) {
    complete_ = true;
    parts_ = parts;
    return "";
  }
  if (have == held.end() || (want != wanted.end() && *want < *have))
    return fmt::format("micro-batch {} of {} is missing", want->micro_batch, part_name(want->part));
  const bool twice = have != held.begin() && *(have - 1) == *have;
  return fmt::format("micro-batch {} of {} {}", have->micro_batch, part_name(have->part),
                     twice ? "is counted twice" : "does not belong there");
}

}  // namespace minitaw::schedule
