// SPDX-License-Identifier: BSD-3-Clause
// What is measured, among whom, and what must come of it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include "base/bf16.hpp"
#include "base/range.hpp"
#include "benchmark.hpp"

namespace minitaw::bench {
using schedule::Kind;
using schedule::Payload;

Kind kind_of(Operation operation) {
  if (operation <= Operation::shift)
    return Kind::send;
  return static_cast<Kind>(static_cast<int>(Kind::broadcast) + static_cast<int>(operation) -
                           static_cast<int>(Operation::broadcast));
}

Payload payload_of(Operation operation) {
  const bool sums = operation == Operation::reduce || operation == Operation::reduce_scatter ||
                    operation == Operation::all_reduce;
  return sums ? Payload::gradient : Payload::weights;
}

schedule::Lane lane_of(Operation operation, const Scope& scope, bool sends) {
  const Kind kind = kind_of(operation);
  return schedule::lane_of(
      kind == Kind::send && !sends ? Kind::recv : kind, payload_of(operation), scope.inside);
}

Member member_of(const Scopes& scopes, const Scope& scope, int rank) {
  for (const int c : scope.communicators) {
    const std::vector<int>& ranks = scopes.program.communicators[static_cast<std::size_t>(c)].ranks;
    if (const auto at = std::ranges::find(ranks, rank); at != ranks.end())
      return {c, ranks, static_cast<int>(at - ranks.begin())};
  }
  return {};
}

namespace {
/// Communicators of one rank have nothing to say. Transports look in the program for what they must
/// be ready for.
void add_scope(
    Scopes& scopes, std::string name, bool inside, const std::vector<std::vector<int>>& all) {
  schedule::Program& program = scopes.program;
  Scope scope{std::move(name), inside, {}};
  for (const std::vector<int>& ranks : all) {
    if (ranks.size() < 2)
      continue;
    scope.communicators.push_back(static_cast<int>(program.communicators.size()));
    program.communicators.push_back({fmt::format("{} {}", scope.name, ranks.front()), ranks});
  }
  if (scope.communicators.empty())
    return;
  for (int rank = 0; rank < static_cast<int>(program.ranks.size()); ++rank) {
    const Member member = member_of(scopes, scope, rank);
    if (!member.taken())
      continue;
    const auto add = [&](Kind kind, Operation operation, int peer, int communicator) {
      schedule::Action a;
      a.kind = kind;
      a.lane = lane_of(operation, scope, kind == Kind::send);
      a.peer = peer;
      a.communicator = communicator;
      a.payload = payload_of(operation);
      program.ranks[static_cast<std::size_t>(rank)].actions.push_back(a);
    };
    add(Kind::recv, Operation::send, member.previous(), -1);
    add(Kind::send, Operation::send, member.next(), -1);
    for (auto o = Operation::broadcast; o <= Operation::all_reduce;
        o = static_cast<Operation>(int(o) + 1))
      add(kind_of(o), o, member.ranks.front(), member.communicator);
  }
  scopes.scopes.push_back(std::move(scope));
}
}  // namespace

Scopes scopes_of(const topology::Groups& groups) {
  Scopes scopes;
  scopes.program.groups = groups;
  scopes.program.ranks.resize(static_cast<std::size_t>(groups.ranks()));
  std::vector<std::vector<int>> inside;
  std::vector<int> first, all;
  for (int g = 0; g < groups.count(); ++g) {
    inside.push_back(groups.members(g));
    first.push_back(groups.first(g));
    all.insert(all.end(), inside.back().begin(), inside.back().end());
  }
  add_scope(scopes, groups.count() == 1 ? "all ranks" : "in groups", true, inside);
  add_scope(scopes, "between groups", false, {first});
  if (groups.count() > 1 && all != first)
    add_scope(scopes, "all ranks", false, {all});
  return scopes;
}

float Contents::number(int rank, std::int64_t i) const {
  std::uint64_t bits = 0x9e3779b97f4a7c15u +
                       static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9u +
                       static_cast<std::uint64_t>(i);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  const float value = static_cast<float>(bits >> 40) * 0x1p-23F - 1;  // of [-1, 1)
  return size_.dtype == model::Dtype::fp32 ? value : to_float(to_bf16(value));
}

std::vector<std::byte> Contents::before(int rank) const {
  const std::size_t width = model::bytes_of(size_.dtype);
  std::vector<std::byte> bytes(size_.bytes());
  for (std::int64_t i = 0; i < size_.elements; ++i) {
    const float wide = number(rank, i);
    const Bf16 narrow = to_bf16(wide);
    const void* from =
        size_.dtype == model::Dtype::fp32 ? static_cast<const void*>(&wide) : &narrow;
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * width, from, width);
  }
  return bytes;
}

std::string Contents::fault(Operation operation,
    const Member& member,
    int rank,
    bool shares_in_place,
    const std::vector<std::byte>& after) const {
  const bool fp32 = size_.dtype == model::Dtype::fp32;
  const auto found = [&](std::int64_t i) {
    float wide = 0;
    Bf16 narrow;
    if (fp32)
      std::memcpy(&wide, after.data() + i * 4, 4);
    else
      std::memcpy(&narrow, after.data() + i * 2, 2);
    return fp32 ? wide : to_float(narrow);
  };
  const auto moved_wrong = [&](int from, const Range& range) {
    for (std::int64_t i = range.begin; i < range.begin + range.count; ++i)
      if (const float right = number(from, i); !(found(i) == right))
        return fmt::format("element {} is {:g}, but rank {} has {:g}", i, found(i), from, right);
    return std::string();
  };
  // Element `at` + k must be the sum of everybody's k-th element of the range. Each of the n - 1
  // additions rounds a number of at most n.
  const auto summed_wrong = [&](const Range& range, std::int64_t at) {
    const double n = member.size(), allowed = (n - 1) * n * (fp32 ? 0x1p-24 : 0x1p-9);
    for (std::int64_t k = 0; k < range.count; ++k) {
      double right = 0;
      for (const int other : member.ranks)
        right += number(other, range.begin + k);
      if (!(std::abs(found(at + k) - right) <= allowed))
        return fmt::format("element {} is {:g}, but the sum over {} ranks is {:g}",
            at + k,
            found(at + k),
            member.size(),
            right);
    }
    return std::string();
  };
  const Range all{0, size_.elements};
  switch (operation) {
  case Operation::send: return moved_wrong(member.receives() ? member.previous() : rank, all);
  case Operation::shift: return moved_wrong(member.previous(), all);
  case Operation::broadcast: return moved_wrong(member.ranks.front(), all);
  case Operation::reduce: return member.index == 0 ? summed_wrong(all, 0) : moved_wrong(rank, all);
  case Operation::all_reduce: return summed_wrong(all, 0);
  case Operation::reduce_scatter: {
    const Range own = share_of(size_.elements, member.size(), member.index);
    return summed_wrong(own, shares_in_place ? own.begin : 0);
  }
  case Operation::all_gather: break;
  }
  std::string fault;
  for (int m = 0; m < member.size() && fault.empty(); ++m)
    fault = moved_wrong(
        member.ranks[static_cast<std::size_t>(m)], share_of(size_.elements, member.size(), m));
  return fault;
}
}  // namespace minitaw::bench
