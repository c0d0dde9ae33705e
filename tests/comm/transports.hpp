// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/transport.hpp"
#include "comm/nccl/transport.hpp"
#include "fake_nccl.hpp"

/// The transports that must behave alike, what they are asked, and what must come of it.
namespace minitaw::comm::test {
using model::Dtype, schedule::Lane, schedule::Payload, schedule::Traffic;
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
    std::memset(to.data(), 0xa5, to.size());
    copies(way, queue).push_back({to, from});
  }

  void wait(Way way, std::size_t queue) override {
    for (const auto& [to, from] : copies(way, queue))
      std::memcpy(to.data(), from.data(), to.size());
    copies(way, queue).clear();
  }

private:
  using Copies = std::vector<std::pair<mpi::Bytes, mpi::Bytes>>;

  Copies& copies(Way way, std::size_t queue) {
    return copies_[2 * queue + (way == Way::load ? 0 : 1)];
  }

  std::array<Copies, 2 * queues> copies_;
};

enum class Kind {
  host,    ///< MPI, buffers in host memory
  staged,  ///< MPI through pinned slots, copies as late as may be
  nccl,    ///< over a stand-in for NCCL; complete when a call returns
};

/// Slots are few and small: messages of a test go round them several times, and neither number nor
/// size divides them.
inline constexpr std::size_t staged_slots = 18, staged_piece = (1 << 16) + 4;

/// A transport with the memory that it needs.
struct Made {
  Made(Kind kind, const schedule::Program& program) {
    constexpr std::size_t of_lane = staged_slots * staged_piece;
    if (kind == Kind::host) {
      memory.resize(2 * communication_lanes * schedule::piece_bytes);
      transport = mpi::make_transport(MPI_COMM_WORLD, program, memory);
    } else if (kind == Kind::staged) {
      memory.resize(communication_lanes * of_lane, std::byte{0x5a});
      mpi::LaneMemories lanes;
      for (std::size_t l = 0; l < communication_lanes; ++l)
        lanes[l + 1] = {.piece_bytes = staged_piece,
            .slots = std::span(memory).subspan(l * of_lane, of_lane),
            .copier = &copiers[l]};
      transport = mpi::make_transport(MPI_COMM_WORLD, program, lanes, "mpi staged");
    } else {
      memory.resize(nccl::scratch_bytes(program));
      nccl::Options options{.scratch = memory};
      for (std::size_t l = 1; l < schedule::lanes; ++l)
        options.queues[l] = &queues[l];
      transport = nccl::make_transport(MPI_COMM_WORLD, program, fake, options);
    }
  }

  [[nodiscard]] nccl::Queue queue(Lane lane) { return &queues[index_of(lane)]; }

  std::vector<std::byte> memory;
  std::array<LazyCopier, communication_lanes> copiers;
  FakeNccl fake;
  std::array<int, schedule::lanes> queues{};  ///< something to tell them by
  std::unique_ptr<Transport> transport;
};

inline constexpr const char* kind_names[] = {"host", "staged", "nccl"};

/// What tests run on: every transport, and those whose operations move only when they are advanced.
inline const auto every_kind = testing::Values(Kind::host, Kind::staged, Kind::nccl);
inline const auto over_mpi = testing::Values(Kind::host, Kind::staged);

#define MINITAW_ON_TRANSPORTS(suite, kinds)                                                        \
  class suite : public testing::TestWithParam<Kind> {};                                            \
  INSTANTIATE_TEST_SUITE_P(On, suite, kinds, [](const auto& which) {                               \
    return kind_names[static_cast<std::size_t>(which.param)];                                      \
  })

/// Communicators that are awkward on purpose: not all ranks, not ascending, one member.
inline std::vector<schedule::Communicator> communicators(int ranks) {
  std::vector<schedule::Communicator> all = {
      {"world", {}}, {"backwards", {}}, {"evens", {}}, {"odds", {}}, {"last", {ranks - 1}}};
  for (int r = 0; r < ranks; ++r) {
    all[0].ranks.push_back(r);
    all[1].ranks.insert(all[1].ranks.begin(), r);
    all[r % 2 == 0 ? 2 : 3].ranks.push_back(r);
  }
  return all;
}

/// Every collective and message that the tests execute, so that a transport is ready for them; no
/// step. For NCCL, which makes a communicator for each lane of each, on the lanes that its tests
/// use.
inline schedule::Program program(int ranks, Kind kind = Kind::host) {
  schedule::Program p;
  p.communicators = communicators(ranks);
  p.groups = topology::Groups({ranks});
  p.ranks.resize(ranks);
  for (int r = 0; r < ranks; ++r)
    for (std::size_t l = 1; l <= communication_lanes; ++l) {
      if (kind == Kind::nccl && l != index_of(Lane::inputs_group) &&
          l != index_of(Lane::inputs_recv))
        continue;
      const auto add = [&](Call call, int peer, int communicator, Payload payload) {
        p.ranks[r].actions.push_back({.kind = call,
            .lane = static_cast<Lane>(l),
            .payload = payload,
            .peer = peer,
            .communicator = communicator});
      };
      for (int c = 0; c < static_cast<int>(p.communicators.size()); ++c)
        if (std::ranges::count(p.communicators[c].ranks, r) > 0)
          add(Call::reduce, p.communicators[c].ranks[0], c, Payload::gradient);
      if (ranks > 1)
        for (const int peer : {(r + 1) % ranks, (r + ranks - 1) % ranks})
          for (const Payload payload : {Payload::weights, Payload::gradient})
            for (const Call call : {Call::send, Call::recv})
              add(call, peer, -1, payload);
    }
  return p;
}

/// What a rank starts on each lane, in order.
using Start = std::function<Transport::Started()>;
using Queues = std::array<std::deque<Start>, communication_lanes>;

/// One thread executes the queues: a lane by chance, on which it starts or advances an operation.
inline void by_one_thread(Queues queues, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::array<Transport::Started, communication_lanes> open;
  std::vector<std::size_t> busy;
  for (std::size_t lane = 0; lane < communication_lanes; ++lane)
    if (!queues[lane].empty())
      busy.push_back(lane);
  while (!busy.empty()) {
    const std::size_t lane = busy[random() % busy.size()];
    if (open[lane] == nullptr) {
      open[lane] = queues[lane].front()();
      queues[lane].pop_front();
    } else if (!open[lane]->advance())
      std::this_thread::yield();
    if (open[lane] != nullptr && open[lane]->done())
      open[lane] = nullptr;
    if (open[lane] == nullptr && queues[lane].empty())
      std::erase(busy, lane);
  }
}

/// A transport of the whole job, or another one of its kind that executes the same program.
struct World {
  explicit World(Kind which) : World(which, program(ranks_of_job(), which)) {}

  World(Kind which, schedule::Program planned)
      : kind(which),
        plan(std::move(planned)),
        made(std::make_shared<Made>(which, plan)),
        built(made, made->transport.get()) {}

  explicit World(std::shared_ptr<Transport> other)
      : plan(program(ranks_of_job())),
        built(std::move(other)) {}

  Kind kind = Kind::staged;
  schedule::Program plan;
  std::shared_ptr<Made> made;
  std::shared_ptr<Transport> built;
  Transport& transport = *built;
  int ranks = ranks_of_job(), rank = transport.rank(), next = (rank + 1) % ranks,
      previous = (rank + ranks - 1) % ranks;

  [[nodiscard]] const std::vector<int>& members(int communicator) const {
    return plan.communicators[communicator].ranks;
  }

  [[nodiscard]] int size(int communicator) const {
    return static_cast<int>(members(communicator).size());
  }

  /// NCCL's messages need another rank.
  [[nodiscard]] bool has_messages() const { return ranks > 1 || !transport.on_stream(); }

  /// Starts an operation and waits for it.
  void execute(Lane lane, const auto&... call) {
    const Transport::Started started = transport.start(lane, call...);
    finish({&started});
  }

  /// Executes messages: what is sent in order on one lane, what is received on another one at the
  /// same time.
  void exchange(const std::vector<Message>& messages) {
    const bool later = kind == Kind::nccl;
    if (later)
      made->fake.complete_later = true;
    Queues queues;
    for (const Message& message : messages) {
      const Lane lane = message.send ? Lane::inputs_send : Lane::inputs_recv;
      queues[index_of(lane) - 1].push_back([=, this] { return transport.start(lane, message); });
    }
    by_one_thread(std::move(queues), 0);
    if (!later)
      return;
    made->fake.finish();
    made->fake.complete_later = false;
  }

  /// Of this rank in the communicator; -1 if it is not a member.
  [[nodiscard]] int position(int communicator) const {
    const auto found = std::ranges::find(members(communicator), rank);
    return found == members(communicator).end()
               ? -1
               : static_cast<int>(found - members(communicator).begin());
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

/// Element i of a rank's contribution: small integers, whose sums over the ranks bf16 holds
/// exactly.
inline float contribution(int rank, std::int64_t i) {
  return static_cast<float>(rank + 1 + i % 7);
}

inline float sum_of(const std::vector<int>& ranks, std::int64_t i) {
  float sum = 0;
  for (const int rank : ranks)
    sum += contribution(rank, i);
  return sum;
}

inline Values contribution_of(int rank, Dtype dtype, std::int64_t elements) {
  Values values(dtype, elements);
  for (std::int64_t i = 0; i < elements; ++i)
    values.set(i, contribution(rank, i));
  return values;
}

/// A value whose sums depend on the order of addition.
inline float rough(int rank, std::int64_t i) {
  return std::sin(static_cast<float>(i * 37 + rank * 11)) * std::exp2(rank % 5);
}

/// Executes a collective on this rank's contribution; returns how many elements are not what they
/// must be.
template <class Buffer = Values>
int wrong_after(World& world,
    Lane lane,
    Call kind,
    int communicator,
    int root,
    Dtype dtype,
    std::int64_t elements) {
  const std::vector<int>& members = world.members(communicator);
  const int size = world.size(communicator);
  Buffer buffer(contribution_of(world.rank, dtype, elements));
  world.execute(lane, kind, buffer.collective(communicator, root));
  const Values& values = buffer.get();
  int wrong = values.kept_to_its_bounds() ? 0 : 1;
  for (int m = 0; m < size; ++m) {
    const Range part = share_of(elements, size, m);
    const bool own = m == world.position(communicator);
    for (std::int64_t i = part.begin; i < part.begin + part.count; ++i) {
      if (kind == Call::reduce_scatter && !own)
        continue;  // left undefined
      float right = contribution(world.rank, i);
      if (kind == Call::broadcast)
        right = contribution(root, i);
      if (kind == Call::all_gather)
        right = contribution(members[m], i);
      if (kind == Call::all_reduce || kind == Call::reduce_scatter ||
          (kind == Call::reduce && world.rank == root))
        right = sum_of(members, i);
      wrong += values.at(i) != right;
    }
  }
  return wrong;
}

/// Bytes of a message, alike in no two pieces.
inline std::vector<std::byte> pattern(int from, int to, Payload payload, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  const std::uint64_t seed =
      static_cast<std::uint64_t>(from * 7 + to * 3 + static_cast<int>(payload)) << 32;
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>(((seed + i) * 0x9e3779b97f4a7c15u) >> 56);
  return data;
}
}  // namespace minitaw::comm::test
