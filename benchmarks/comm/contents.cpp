#include "contents.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/bf16.hpp"
#include "base/range.hpp"
#include "comm/transport.hpp"

namespace minitaw::bench {
namespace {

/// Of [-1, 1).
float random_number(std::uint64_t seed, int rank, std::int64_t i) {
  std::uint64_t bits = seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9u +
                       static_cast<std::uint64_t>(i);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(bits >> 40) * 0x1p-23F - 1;
}

std::vector<float> floats(const std::vector<std::byte>& bytes, const Size& size) {
  std::vector<float> values(static_cast<std::size_t>(size.elements));
  if (size.scalar == comm::Scalar::fp32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    Bf16 narrow;
    std::memcpy(&narrow, bytes.data() + i * sizeof(narrow), sizeof(narrow));
    values[i] = to_float(narrow);
  }
  return values;
}

}  // namespace

float Contents::number(int rank, std::int64_t i) const {
  const float value = random_number(seed_, rank, i);
  return size_.scalar == comm::Scalar::fp32 ? value : to_float(to_bf16(value));
}

std::vector<std::byte> Contents::before(int rank) const {
  const std::size_t width = comm::bytes_of(size_.scalar);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_.elements) * width);
  for (std::int64_t i = 0; i < size_.elements; ++i) {
    const float wide = number(rank, i);
    const Bf16 narrow = to_bf16(wide);
    const void* from = size_.scalar == comm::Scalar::fp32 ? static_cast<const void*>(&wide) : &narrow;
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * width, from, width);
  }
  return bytes;
}

std::string Contents::moved_wrong(const std::vector<float>& after, int from, std::int64_t begin,
                                  std::int64_t count) const {
  for (std::int64_t i = begin; i < begin + count; ++i)
    if (const float right = number(from, i); !(after[static_cast<std::size_t>(i)] == right))
      return fmt::format("element {} is {:g}, but rank {} has {:g}", i, after[static_cast<std::size_t>(i)],
                         from, right);
  return {};
}

/// Element `at` + k must be the sum of everybody's element `begin` + k. Each of the n - 1 additions rounds a
/// number of at most n.
std::string Contents::summed_wrong(const std::vector<float>& after, const Member& member, std::int64_t at,
                                   std::int64_t begin, std::int64_t count) const {
  const double n = member.size();
  const double allowed = (n - 1) * n * (size_.scalar == comm::Scalar::fp32 ? 0x1p-24 : 0x1p-9);
  for (std::int64_t k = 0; k < count; ++k) {
    double right = 0;
    for (const int rank : member.ranks) right += number(rank, begin + k);
    if (const float found = after[static_cast<std::size_t>(at + k)]; !(std::abs(found - right) <= allowed))
      return fmt::format("element {} is {:g}, but the sum over {} ranks is {:g}", at + k, found, member.size(),
                         right);
  }
  return {};
}

std::string Contents::fault(Operation operation, const Member& member, int rank, Slices slices,
                            const std::vector<std::byte>& after) const {
  const std::vector<float> values = floats(after, size_);
  switch (operation) {
  case Operation::send:
    return moved_wrong(values, member.receives() ? member.previous() : rank, 0, size_.elements);
  case Operation::shift:
    return moved_wrong(values, member.previous(), 0, size_.elements);
  case Operation::broadcast:
    return moved_wrong(values, member.ranks.front(), 0, size_.elements);
  case Operation::reduce:
    if (member.index != 0) return moved_wrong(values, rank, 0, size_.elements);
    return summed_wrong(values, member, 0, 0, size_.elements);
  case Operation::all_reduce:
    return summed_wrong(values, member, 0, 0, size_.elements);
  case Operation::reduce_scatter: {
    const auto [begin, count] = minitaw::slice(size_.elements, member.size(), member.index);
    return summed_wrong(values, member, slices == Slices::in_place ? begin : 0, begin, count);
  }
  case Operation::all_gather:
    break;
  }
  for (int m = 0; m < member.size(); ++m) {
    const auto [begin, count] = minitaw::slice(size_.elements, member.size(), m);
    if (std::string fault = moved_wrong(values, member.ranks[static_cast<std::size_t>(m)], begin, count);
        !fault.empty())
      return fault;
  }
  return {};
}

}  // namespace minitaw::bench
