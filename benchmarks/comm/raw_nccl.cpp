#include "comm/mpi/mpi.hpp"
#include "comm/nccl/api.hpp"
#include "base/range.hpp"
#include "comm/transport.hpp"
#include "engine/queue.hpp"
#include "backend.hpp"

namespace minitaw::bench {
namespace {

using comm::mpi::check;
using comm::nccl::Communicator;
using comm::nccl::Queue;
using comm::nccl::Type;

void wait_ready(Communicator& communicator) {
  while (!communicator.ready()) {
  }
}

/// This rank in the team of a place; nothing if it has no member. The first member's id is told by MPI.
std::unique_ptr<Communicator> join(const Member& member) {
  MPI_Comm team = MPI_COMM_NULL;
  check(MPI_Comm_split(MPI_COMM_WORLD, member.taken() ? member.communicator : MPI_UNDEFINED, member.index, &team),
        "MPI_Comm_split");
  if (!member.taken()) return nullptr;
  comm::nccl::UniqueId id{};
  if (member.index == 0) id = comm::nccl::library().unique_id();
  check(MPI_Bcast(id.data(), static_cast<int>(id.size()), MPI_BYTE, 0, team), "telling NCCL's unique id");
  MPI_Comm_free(&team);
  std::unique_ptr<Communicator> communicator = comm::nccl::library().init(member.size(), id, member.index);
  wait_ready(*communicator);
  return communicator;
}

/// One call of a place's communicator, on the device memory of a size.
struct Call {
  Communicator& team;
  const Member& member;
  const Size& size;
  std::byte* data;
  std::byte* landing;
  Queue queue;

  [[nodiscard]] std::size_t width() const { return comm::bytes_of(size.scalar); }
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(size.elements); }
  [[nodiscard]] std::size_t bytes() const { return count() * width(); }
  [[nodiscard]] Type type() const { return size.scalar == comm::Scalar::fp32 ? Type::fp32 : Type::bf16; }
  [[nodiscard]] bool even() const { return count() % static_cast<std::size_t>(member.size()) == 0; }
  [[nodiscard]] std::size_t each() const { return count() / static_cast<std::size_t>(member.size()); }
  [[nodiscard]] std::byte* own_slice() const {
    return data + static_cast<std::size_t>(member.index) * each() * width();
  }

  /// NCCL has no calls for unequal slices: one call for each, as a group.
  template <class Do>
  void slice_by_slice(const Do& act) const {
    for (int m = 0; m < member.size(); ++m) {
      const Range part = minitaw::slice(size.elements, member.size(), m);
      if (part.count > 0)
        act(m, data + static_cast<std::size_t>(part.begin) * width(), static_cast<std::size_t>(part.count));
    }
  }
};

void send(const Call& c) {
  if (c.member.sends()) c.team.send(c.data, c.bytes(), c.member.index + 1, c.queue);
  else if (c.member.receives()) c.team.receive(c.data, c.bytes(), c.member.index - 1, c.queue);
}

void shift(const Call& c) {
  const int n = c.member.size();
  c.team.send(c.data, c.bytes(), (c.member.index + 1) % n, c.queue);
  c.team.receive(c.landing, c.bytes(), (c.member.index + n - 1) % n, c.queue);
}

void all_gather(const Call& c) {
  if (c.even()) return c.team.all_gather(c.own_slice(), c.data, c.each(), c.type(), c.queue);
  c.slice_by_slice(
      [&](int m, std::byte* at, std::size_t n) { c.team.broadcast(at, at, n, c.type(), m, c.queue); });
}

void reduce_scatter(const Call& c) {
  if (c.even()) return c.team.reduce_scatter(c.data, c.own_slice(), c.each(), c.type(), c.queue);
  c.slice_by_slice(
      [&](int m, std::byte* at, std::size_t n) { c.team.reduce(at, at, n, c.type(), m, c.queue); });
}

void start(Operation operation, const Call& c) {
  switch (operation) {
  case Operation::send:
    return send(c);
  case Operation::shift:
    return shift(c);
  case Operation::broadcast:
    return c.team.broadcast(c.data, c.data, c.bytes(), Type::bytes, 0, c.queue);
  case Operation::reduce:
    return c.team.reduce(c.data, c.data, c.count(), c.type(), 0, c.queue);
  case Operation::all_gather:
    return all_gather(c);
  case Operation::reduce_scatter:
    return reduce_scatter(c);
  case Operation::all_reduce:
    return c.team.all_reduce(c.data, c.data, c.count(), c.type(), c.queue);
  }
}

class RawNccl final : public Backend {
public:
  explicit RawNccl(const Places& places) {
    const int rank = comm::mpi::rank_in(MPI_COMM_WORLD);
    for (const Place& place : places.places) {
      names_.push_back(place.name);
      teams_.push_back(join(member_of(places, place, rank)));
    }
  }
  ~RawNccl() override {
    for (const auto& team : teams_) {
      if (team == nullptr) continue;
      team->close();
      wait_ready(*team);
    }
  }

  void move(Operation operation, const Place& place, const Member& member, const Size& size,
            Buffers& buffers) override {
    Communicator& team =
        *teams_[static_cast<std::size_t>(std::ranges::find(names_, place.name) - names_.begin())];
    comm::nccl::Api& api = comm::nccl::library();
    const schedule::Lane lane = lane_of(operation, place, false);
    api.group_start();
    start(operation,
          {team, member, size, buffers.data.data(), buffers.landing.data(), engine::lane_stream(lane)});
    api.group_end();
    wait_ready(team);
    engine::lane_space(lane).fence("minitaw::comm benchmark");
  }
  [[nodiscard]] Contents::Slices slices() const override { return Contents::Slices::in_place; }
  [[nodiscard]] std::string name() const override { return "NCCL calls"; }

private:
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Communicator>> teams_;  ///< by place
};

}  // namespace

std::unique_ptr<Backend> make_raw_nccl(const Places& places) { return std::make_unique<RawNccl>(places); }

}  // namespace minitaw::bench
