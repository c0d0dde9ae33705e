// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/transport.hpp"
#include "comm/nccl/transport.hpp"
#include "fake_nccl.hpp"

/// The transports that must behave alike, what they are asked, and what must come of it.
namespace minitaw::comm::test {
using model::Dtype, schedule::Lane, schedule::Payload;
using Call = schedule::Kind;

inline constexpr std::array collectives{
    Call::broadcast, Call::reduce, Call::all_gather, Call::reduce_scatter, Call::all_reduce};
inline constexpr Dtype dtypes[] = {Dtype::fp32, Dtype::bf16};
inline constexpr std::size_t communication_lanes = schedule::lanes - 1;

inline int ranks_of_job() {
  return mpi::size_of(MPI_COMM_WORLD);
}

/// Copies when somebody waits, and leaves poison until then: a missing wait, or memory used too
/// early, shows.
class LazyCopier final : public mpi::Copier {
public:
  void copy(Way way, std::size_t queue, mpi::Bytes to, mpi::Bytes from) override {
    std::ranges::fill(to, std::byte{0xa5});
    copies_[{way, queue}].emplace_back(to, from);
  }

  void wait(Way way, std::size_t queue) override {
    for (const auto& [to, from] : std::exchange(copies_[{way, queue}], {}))
      std::ranges::copy(from, to.begin());
  }

private:
  std::map<std::pair<Way, std::size_t>, std::vector<std::pair<mpi::Bytes, mpi::Bytes>>> copies_;
};

enum class Kind {
  host,    ///< MPI, buffers in host memory
  staged,  ///< MPI through pinned slots, copies as late as may be
  nccl,    ///< over a stand-in for NCCL
};

/// Slots are few and small: messages of a test go round them several times, and neither number nor
/// size divides them.
inline constexpr std::size_t staged_slots = 18, staged_piece = (1 << 16) + 4;

inline constexpr const char* kind_names[] = {"host", "staged", "nccl"};

/// What tests run on: every transport, and those whose operations move only when they are advanced.
inline const auto every_kind = testing::Values(Kind::host, Kind::staged, Kind::nccl);
inline const auto over_mpi = testing::Values(Kind::host, Kind::staged);

#define MINITAW_ON_TRANSPORTS(suite, kinds)                                                        \
  class suite : public testing::TestWithParam<Kind> {};                                            \
  INSTANTIATE_TEST_SUITE_P(On, suite, kinds, [](const auto& which) {                               \
    return kind_names[static_cast<std::size_t>(which.param)];                                      \
  })

/// Communicators that are awkward on purpose: not all ranks, not ascending, one member. Every
/// collective and message that the tests execute, so that a transport is ready for them; no step.
/// For NCCL, which makes a communicator for each lane of each, on the lanes that its tests use.
inline schedule::Program program(int ranks, Kind kind = Kind::host) {
  schedule::Program p;
  p.communicators = {
      {"world", {}}, {"backwards", {}}, {"evens", {}}, {"odds", {}}, {"last", {ranks - 1}}};
  for (int r = 0; r < ranks; ++r) {
    p.communicators[0].ranks.push_back(r);
    p.communicators[1].ranks.insert(p.communicators[1].ranks.begin(), r);
    p.communicators[r % 2 == 0 ? 2 : 3].ranks.push_back(r);
  }
  p.groups = topology::Groups({ranks});
  p.ranks.resize(ranks);
  for (int r = 0; r < ranks; ++r)
    for (std::size_t l = 1; l < schedule::lanes; ++l) {
      const auto lane = static_cast<Lane>(l);
      if (kind == Kind::nccl && lane != Lane::inputs_group && lane != Lane::inputs_recv)
        continue;
      const auto add = [&](Call call, Payload payload, int peer, int communicator) {
        p.ranks[r].actions.push_back({.kind = call,
            .lane = lane,
            .payload = payload,
            .peer = peer,
            .communicator = communicator});
      };
      for (const int c : indices(p.communicators))
        if (p.communicators[c].index_of(r) >= 0)
          add(Call::reduce, Payload::gradient, p.communicators[c].ranks[0], c);
      if (ranks > 1)
        for (const int peer : {(r + 1) % ranks, (r + ranks - 1) % ranks})
          for (const Payload payload : {Payload::weights, Payload::gradient})
            for (const Call call : {Call::send, Call::recv})
              add(call, payload, peer, -1);
    }
  return p;
}

/// What a rank starts on each lane, in order.
using Start = std::function<Transport::Started()>;
using Queues = std::array<std::deque<Start>, schedule::lanes>;

/// One thread executes the queues: a lane by chance, on which it starts or advances an operation.
inline void by_one_thread(Queues queues, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::array<Transport::Started, schedule::lanes> open;
  std::size_t left = 0;
  for (const auto& queue : queues)
    left += queue.size();
  while (left > 0) {
    const std::size_t lane = random() % schedule::lanes;
    if (open[lane] == nullptr) {
      if (queues[lane].empty())
        continue;
      open[lane] = queues[lane].front()();
      queues[lane].pop_front();
    } else if (!open[lane]->advance())
      std::this_thread::yield();
    if (open[lane] == nullptr || open[lane]->done()) {
      open[lane] = nullptr;
      --left;
    }
  }
}

/// A transport of the whole job with the memory that it needs, or another one for the same program.
struct World {
  explicit World(Kind which) : World(which, program(ranks_of_job(), which)) {}

  World(Kind which, schedule::Program planned)
      : kind(which),
        plan(std::move(planned)),
        owned(make()) {
    fake.complete_later = true;
  }

  explicit World(std::shared_ptr<Transport> other)
      : plan(program(ranks_of_job())),
        owned(std::move(other)) {}

  std::shared_ptr<Transport> make() {
    constexpr std::size_t of_lane = staged_slots * staged_piece;
    if (kind == Kind::host) {
      memory.resize(2 * communication_lanes * schedule::piece_bytes);
      return mpi::make_transport(MPI_COMM_WORLD, plan, memory);
    }
    if (kind == Kind::staged) {
      memory.resize(schedule::lanes * of_lane, std::byte{0x5a});
      mpi::LaneMemories lanes;
      for (std::size_t l = 1; l < schedule::lanes; ++l)
        lanes[l] = {.piece_bytes = staged_piece,
            .slots = std::span(memory).subspan(l * of_lane, of_lane),
            .copier = &copiers[l]};
      return mpi::make_transport(MPI_COMM_WORLD, plan, lanes, "mpi staged");
    }
    memory.resize(nccl::scratch_bytes(plan));
    nccl::Options options{.scratch = memory};
    for (std::size_t l = 1; l < schedule::lanes; ++l)
      options.queues[l] = &queues[l];
    return nccl::make_transport(MPI_COMM_WORLD, plan, fake, options);
  }

  Kind kind = Kind::nccl;
  schedule::Program plan;
  std::vector<std::byte> memory;
  std::array<LazyCopier, schedule::lanes> copiers;
  FakeNccl fake;
  std::array<int, schedule::lanes> queues{};  ///< something to tell them by
  std::shared_ptr<Transport> owned;
  Transport& transport = *owned;
  int ranks = ranks_of_job(), rank = transport.rank(), next = (rank + 1) % ranks,
      previous = (rank + ranks - 1) % ranks;

  [[nodiscard]] const std::vector<int>& members(int communicator) const {
    return plan.communicators[communicator].ranks;
  }

  /// Of this rank in the communicator; -1 if it is not a member.
  [[nodiscard]] int position(int communicator) const {
    return plan.communicators[communicator].index_of(rank);
  }

  /// Starts an operation and waits for it.
  void execute(Lane lane, const auto&... call) {
    const Transport::Started started = transport.start(lane, call...);
    comm::finish({&started});
    fake.finish();
  }

  /// Executes messages: what is sent in order on one lane, what is received on another one at the
  /// same time.
  void exchange(const std::vector<Message>& messages) {
    Queues by_lane;
    for (const Message& message : messages) {
      const Lane lane = message.send ? Lane::inputs_send : Lane::inputs_recv;
      by_lane[index_of(lane)].push_back([=, this] { return transport.start(lane, message); });
    }
    by_one_thread(std::move(by_lane), 0);
    fake.finish();
  }
};

/// A buffer of fp32 or bf16 values seen as floats.
class Values {
public:
  Values(Dtype dtype, std::int64_t elements)
      : dtype_(dtype),
        elements_(elements),
        bytes_(elements * bytes_of(dtype) + 1) {}

  [[nodiscard]] const Values& get() const { return *this; }

  [[nodiscard]] float at(std::int64_t i) const {
    if (dtype_ == Dtype::fp32)
      return reinterpret_cast<const float*>(bytes_.data())[i];
    return to_float(reinterpret_cast<const Bf16*>(bytes_.data())[i]);
  }

  void set(std::int64_t i, float value) {
    if (dtype_ == Dtype::fp32)
      reinterpret_cast<float*>(data())[i] = value;
    else
      reinterpret_cast<Bf16*>(data())[i] = to_bf16(value);
  }

  [[nodiscard]] std::byte* data() { return bytes_.data(); }

  [[nodiscard]] std::size_t bytes() const { return bytes_.size() - 1; }

  [[nodiscard]] bool kept_to_its_bounds() const { return bytes_.back() == std::byte{}; }

  friend bool operator==(const Values&, const Values&) = default;

  [[nodiscard]] Collective collective(int communicator, int root = -1) {
    return {communicator, root, Payload::gradient, dtype_, data(), elements_};
  }

  [[nodiscard]] Message message(bool send, int peer, Payload payload = Payload::weights) {
    return {send, peer, payload, data(), bytes()};
  }

private:
  Dtype dtype_;
  std::int64_t elements_;
  std::vector<std::byte> bytes_;  ///< one byte more than needed: no one may touch it
};

/// Element i of a rank's contribution. Sums of `rough` ones depend on the order of addition; others
/// are small integers, whose sums over the ranks bf16 holds exactly.
inline float contribution(int rank, std::int64_t i, bool rough) {
  return rough ? 1 / static_cast<float>(rank + 1 + i % 97) : static_cast<float>(rank + 1 + i % 7);
}

inline Values contribution_of(
    int rank, Dtype dtype, std::int64_t elements, bool rough = false, std::int64_t shift = 0) {
  Values values(dtype, elements);
  for (std::int64_t i = 0; i < elements; ++i)
    values.set(i, contribution(rank, i + shift, rough));
  return values;
}

/// A collective on everybody's contributions.
struct Joint {
  Call call;
  int communicator = 0, root = 0;
  Dtype dtype = Dtype::fp32;
  std::int64_t elements = 0, shift = 0;
};

/// Returns how many elements are not what they must be. MPI's sums have an order: a chain adds from
/// the last member to the root, a ring from the member after the share's own; all are rounded.
inline std::int64_t wrong_in(const Values& values, const Joint& joint, const World& world) {
  const auto& [call, communicator, root, dtype, elements, shift] = joint;
  const std::vector<int>& members = world.members(communicator);
  const int size = static_cast<int>(members.size()),
            first = world.plan.communicators[communicator].index_of(root);
  const bool rough = world.kind != Kind::nccl;
  const bool sums = call == Call::all_reduce || call == Call::reduce_scatter ||
                    (call == Call::reduce && world.rank == root);
  const auto rounded = [dtype](float value) {
    return dtype == Dtype::fp32 ? value : to_float(to_bf16(value));
  };
  std::int64_t wrong = values.kept_to_its_bounds() ? 0 : 1;
  for (int m = 0; m < size; ++m) {
    if (call == Call::reduce_scatter && m != world.position(communicator))
      continue;  // left undefined
    std::vector<int> added{call == Call::broadcast    ? root
                           : call == Call::all_gather ? members[m]
                                                      : world.rank};
    if (sums)
      added.clear();
    for (int k = 1; sums && k <= size; ++k)
      added.push_back(members[(call == Call::reduce ? first + size - k : m + k) % size]);
    const Range part = share_of(elements, size, m);
    for (std::int64_t i = part.begin; i < part.begin + part.count; ++i) {
      float right = 0;
      for (const int one : added)
        right = rounded(right + rounded(contribution(one, i + shift, rough)));
      wrong += values.at(i) != right;
    }
  }
  return wrong;
}

template <class Buffer = Values>
std::int64_t wrong_after(World& world, Lane lane, const Joint& joint) {
  Buffer buffer(contribution_of(
      world.rank, joint.dtype, joint.elements, world.kind != Kind::nccl, joint.shift));
  world.execute(lane, joint.call, buffer.collective(joint.communicator, joint.root));
  return wrong_in(buffer.get(), joint, world);
}
}  // namespace minitaw::comm::test
