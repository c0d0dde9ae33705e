#include "schedule/account.hpp"

#include <algorithm>
#include <limits>

namespace minitaw::schedule {

std::string name_of(Traffic kind) {
  switch (kind) {
  case Traffic::weights:
    return "weights";
  case Traffic::gradients:
    return "gradients";
  case Traffic::activations:
    return "activations";
  case Traffic::ends:
    return "ends";
  }
  return "";
}

Traffic traffic_of(Payload payload) {
  switch (payload) {
  case Payload::gradient:
    return Traffic::gradients;
  case Payload::activation:
  case Payload::activation_grad:
    return Traffic::activations;
  case Payload::ends:
  case Payload::ends_gradient:
    return Traffic::ends;
  case Payload::none:
  case Payload::weights:
    break;
  }
  return Traffic::weights;
}

ByteMatrix::ByteMatrix(int ranks) : ranks_(ranks), cells_(static_cast<std::size_t>(ranks) * ranks) {}

void ByteMatrix::add(int from, int to, Traffic kind, std::uint64_t bytes) {
  cells_[static_cast<std::size_t>(from) * ranks_ + to][static_cast<std::size_t>(kind)] += bytes;
}

std::uint64_t ByteMatrix::at(int from, int to, Traffic kind) const {
  return cells_[static_cast<std::size_t>(from) * ranks_ + to][static_cast<std::size_t>(kind)];
}

namespace {

template <class Counts>
std::uint64_t sum(const ByteMatrix& matrix, const Counts& counts) {
  std::uint64_t total = 0;
  for (int from = 0; from < matrix.ranks(); ++from)
    for (int to = 0; to < matrix.ranks(); ++to)
      for (int k = 0; k < traffic_kinds; ++k)
        if (const auto kind = static_cast<Traffic>(k); counts(from, to, kind))
          total += matrix.at(from, to, kind);
  return total;
}

}  // namespace

std::uint64_t ByteMatrix::inside(const topology::Groups& groups, Traffic kind) const {
  return sum(*this, [&](int from, int to, Traffic k) { return k == kind && groups.together(from, to); });
}

std::uint64_t ByteMatrix::between(const topology::Groups& groups, Traffic kind) const {
  return sum(*this, [&](int from, int to, Traffic k) { return k == kind && !groups.together(from, to); });
}

std::uint64_t ByteMatrix::leaving(const topology::Groups& groups, int group) const {
  return sum(*this, [&](int from, int to, Traffic) {
    return groups.group_of(from) == group && groups.group_of(to) != group;
  });
}

std::uint64_t ByteMatrix::entering(const topology::Groups& groups, int group) const {
  return sum(*this, [&](int from, int to, Traffic) {
    return groups.group_of(from) != group && groups.group_of(to) == group;
  });
}

namespace {

void count(MessageCounts& counts, const Action& a, int rank, const topology::Groups& groups) {
  const bool root = a.peer == rank;
  if (a.kind == Kind::broadcast && root) ++counts.broadcasts;
  if (a.kind == Kind::reduce && root) ++counts.reduces;
  if (a.kind != Kind::send) return;
  const bool inside = groups.together(rank, a.peer);
  if (a.payload == Payload::weights) ++(inside ? counts.weights_inside : counts.weights_between);
  if (a.payload == Payload::gradient) ++(inside ? counts.gradients_inside : counts.gradients_between);
}

bool is_visit(Kind kind) {
  return kind == Kind::forward || kind == Kind::backward || kind == Kind::backward_input ||
         kind == Kind::backward_weight;
}

int busy_ticks(const RankProgram& rank) {
  std::vector<int> ticks;
  for (const Action& a : rank.actions)
    if (is_visit(a.kind)) ticks.push_back(a.tick);
  std::ranges::sort(ticks);
  return static_cast<int>(std::ranges::unique(ticks).begin() - ticks.begin());
}

}  // namespace

MessageCounts messages(const Program& program) {
  MessageCounts counts;
  for (int r = 0; r < static_cast<int>(program.ranks.size()); ++r)
    for (const Action& a : program.ranks[r].actions) count(counts, a, r, program.groups);
  return counts;
}

Ticks ticks(const Program& program) {
  Ticks result;
  int first = std::numeric_limits<int>::max(), last = std::numeric_limits<int>::min();
  for (const RankProgram& rank : program.ranks) {
    for (const Action& a : rank.actions) {
      if (!is_visit(a.kind) && !is_communication(a.kind)) continue;
      first = std::min(first, a.tick);
      last = std::max(last, a.tick);
    }
    result.busy.push_back(busy_ticks(rank));
  }
  result.total = first <= last ? last - first + 1 : 0;
  return result;
}

}  // namespace minitaw::schedule
