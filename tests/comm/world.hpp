#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/bf16.hpp"
#include "base/range.hpp"
#include "comm/transport.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {

using schedule::Lane;
using schedule::Payload;
using schedule::Traffic;

inline int ranks_of_job() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

/// Communicators that are awkward on purpose: not all ranks, not ascending, one member.
inline std::vector<schedule::Communicator> communicators(int ranks) {
  std::vector<schedule::Communicator> all(5);
  all[0].name = "world", all[1].name = "backwards", all[2].name = "evens", all[3].name = "odds",
  all[4].name = "last";
  for (int r = 0; r < ranks; ++r) {
    all[0].ranks.push_back(r);
    all[1].ranks.insert(all[1].ranks.begin(), r);
    all[r % 2 == 0 ? 2 : 3].ranks.push_back(r);
  }
  all[4].ranks = {ranks - 1};
  return all;
}

/// Every collective and message that the tests execute, so that a transport is ready for them; no step.
inline schedule::Program program(int ranks) {
  schedule::Program p;
  p.communicators = communicators(ranks);
  p.groups = topology::Groups({ranks});
  p.ranks.resize(ranks);
  for (int r = 0; r < ranks; ++r)
    for (std::size_t l = 1; l <= communication_lanes; ++l) {
      const auto lane = static_cast<Lane>(l);
      const auto add = [&](schedule::Kind kind, int peer, int communicator, Payload payload) {
        schedule::Action a;
        a.kind = kind, a.lane = lane, a.peer = peer, a.communicator = communicator, a.payload = payload;
        p.ranks[r].actions.push_back(a);
      };
      for (int c = 0; c < static_cast<int>(p.communicators.size()); ++c)
        if (std::ranges::count(p.communicators[c].ranks, r) > 0)
          add(schedule::Kind::reduce, p.communicators[c].ranks[0], c, Payload::gradient);
      for (const int peer : {(r + 1) % ranks, (r + ranks - 1) % ranks})
        for (const Payload payload : {Payload::weights, Payload::gradient}) {
          add(schedule::Kind::send, peer, -1, payload);
          add(schedule::Kind::recv, peer, -1, payload);
        }
    }
  return p;
}

/// A transport of the whole job.
struct World {
  explicit World(Kind which) : kind(which) {}

  Kind kind;
  int ranks = ranks_of_job();
  schedule::Program plan = program(ranks);
  std::unique_ptr<Built> built = build(kind, plan);
  Transport& transport = built->transport();
  int rank = transport.rank();

  /// Indices of the communicators that this rank belongs to.
  [[nodiscard]] std::vector<int> mine() const {
    std::vector<int> indices;
    for (int c = 0; c < static_cast<int>(plan.communicators.size()); ++c)
      if (position(c) >= 0) indices.push_back(c);
    return indices;
  }
  [[nodiscard]] const std::vector<int>& members(int communicator) const {
    return plan.communicators[communicator].ranks;
  }
  /// First, last and middle member: where a chain can go wrong.
  [[nodiscard]] std::set<int> roots(int communicator) const {
    const std::vector<int>& all = members(communicator);
    return {all.front(), all[all.size() / 2], all.back()};
  }
  [[nodiscard]] int size(int communicator) const { return static_cast<int>(members(communicator).size()); }
  /// Of this rank in the communicator; -1 if it is not a member.
  [[nodiscard]] int position(int communicator) const {
    for (int i = 0; i < size(communicator); ++i)
      if (members(communicator)[i] == rank) return i;
    return -1;
  }
};

/// A buffer of fp32 or bf16 values seen as floats.
class Values {
public:
  Values(Scalar scalar, std::int64_t elements)
      : scalar_(scalar), elements_(elements), bytes_(elements * bytes_of(scalar) + 1) {}

  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] float at(std::int64_t i) const {
    if (scalar_ == Scalar::fp32) return load<float>(i);
    return to_float(load<Bf16>(i));
  }
  void set(std::int64_t i, float value) {
    if (scalar_ == Scalar::fp32) store(i, value);
    else store(i, to_bf16(value));
  }
  [[nodiscard]] std::byte* data() { return bytes_.data(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_.size() - 1; }
  friend bool operator==(const Values&, const Values&) = default;

  [[nodiscard]] Collective collective(int communicator, int root = -1) {
    return {communicator, root, Payload::gradient, scalar_, data(), elements_};
  }

private:
  template <class T>
  [[nodiscard]] T load(std::int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void store(std::int64_t i, T value) {
    std::memcpy(bytes_.data() + i * sizeof(T), &value, sizeof(T));
  }

  Scalar scalar_;
  std::int64_t elements_;
  std::vector<std::byte> bytes_;  ///< one byte more than needed: nobody may touch it
};

/// Element i of a rank's contribution: small integers, whose sums over the ranks bf16 holds exactly.
inline float contribution(int rank, std::int64_t i) { return static_cast<float>(rank + 1 + i % 7); }
inline float sum_of(const std::vector<int>& ranks, std::int64_t i) {
  float sum = 0;
  for (const int rank : ranks) sum += contribution(rank, i);
  return sum;
}

inline Values contribution_of(int rank, Scalar scalar, std::int64_t elements) {
  Values values(scalar, elements);
  for (std::int64_t i = 0; i < elements; ++i) values.set(i, contribution(rank, i));
  return values;
}

/// Nothing, one element, slices that are shorter or empty, and, where a transport cuts messages into pieces,
/// just above one chunk and several.
inline std::vector<std::int64_t> awkward_sizes(const World& world, Scalar scalar, int members) {
  const auto chunk = static_cast<std::int64_t>(schedule::chunk_bytes / bytes_of(scalar));
  if (world.kind == Kind::nccl) return {0, 1, members - 1, members + 1, 3 * members + 1, 100 * members};
  return {0,    1,     members - 1, members + 1,   3 * members + 1,
          1000, chunk, chunk + 1,   3 * chunk + 7, (2 * chunk + 3) * members - 1};
}

/// Bytes of a message, alike in no two pieces.
inline std::vector<std::byte> pattern(int from, int to, Payload payload, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  const std::uint64_t seed = static_cast<std::uint64_t>(from * 7 + to * 3 + static_cast<int>(payload)) << 32;
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>(((seed + i) * 0x9e3779b97f4a7c15u) >> 56);
  return data;
}

inline constexpr Scalar scalars[] = {Scalar::fp32, Scalar::bf16};

}  // namespace minitaw::comm::test
