#include "schedule/play_sum.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace minitaw::schedule {
namespace {

/// A bijection of 64 bits that leaves nothing of its input to be seen (the finaliser of splitmix64; Steele,
/// Lea, Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::uint64_t key_of(Contribution c) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.part)) << 32 |
         static_cast<std::uint32_t>(c.micro_batch);
}

}  // namespace

std::string part_name(std::int32_t part) {
  if (part == Contribution::embedding) return "the embedding";
  return part == Contribution::head ? "the head" : fmt::format("shard {}", part);
}

void Sum::add(Contribution c) {
  if (size_ == 0) part_ = c.part;
  mixed_ = mixed_ || c.part != part_;
  ++size_;
  low_ += mixed(key_of(c));
  high_ += mixed(~key_of(c));
  if (listed_) items_.push_back(c);
}

void Sum::add(const Sum& other) {
  if (other.size_ == 0) return;
  if (size_ == 0) part_ = other.part_;
  mixed_ = mixed_ || other.mixed_ || other.part_ != part_;
  size_ += other.size_;
  low_ += other.low_;
  high_ += other.high_;
  // By index: a sum may be added to itself.
  const std::size_t count = other.items_.size();
  for (std::size_t i = 0; i < count; ++i) items_.push_back(other.items_[i]);
}

const Contribution* Sum::foreign(std::int32_t part) const {
  const auto at = std::ranges::find_if(items_, [&](const Contribution& c) { return c.part != part; });
  return at == items_.end() ? nullptr : &*at;
}

Sum Sum::complete(const std::vector<std::int32_t>& parts, int micro_batches, bool listed) {
  Sum sum(listed);
  for (const std::int32_t part : parts)
    for (int m = 0; m < micro_batches; ++m) sum.add({part, m});
  return sum;
}

std::string Sum::defect(const Sum& sum) const {
  if (*this == sum) return "";
  if (!listed_ || !sum.listed_) return "contributions are missing or counted twice";
  std::vector<Contribution> wanted = sum.items_;
  std::vector<Contribution> held = items_;
  std::ranges::sort(wanted);
  std::ranges::sort(held);
  const auto [want, have] = std::ranges::mismatch(wanted, held);
  if (have == held.end() || (want != wanted.end() && *want < *have))
    return fmt::format("micro-batch {} of {} is missing", want->micro_batch, part_name(want->part));
  const bool twice = have != held.begin() && *(have - 1) == *have;
  return fmt::format("micro-batch {} of {} {}", have->micro_batch, part_name(have->part),
                     twice ? "is counted twice" : "does not belong there");
}

}  // namespace minitaw::schedule
