// SPDX-License-Identifier: BSD-3-Clause
#include "comm/mpi/transport.hpp"
#include <algorithm>
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/passage.hpp"
#include "comm/mpi/sends.hpp"

namespace minitaw::comm::mpi {
using schedule::Kind, schedule::Lane;

namespace {
/// MPI counts in int: longer messages travel in pieces of this size.
constexpr std::size_t largest_message = std::size_t{1} << 30;
/// Slots of a lane that adds up what arrives in host memory.
constexpr std::size_t host_slots = 2;

/// `data` in pieces of at most `largest` bytes. Both sides of a message cut alike: pieces need no
/// header.
std::vector<Bytes> cut(Bytes data, std::size_t largest) {
  std::vector<Bytes> pieces;
  for (; !data.empty(); data = data.subspan(pieces.back().size()))
    pieces.push_back(data.first(std::min(largest, data.size())));
  return pieces;
}

/// Some elements of a collective's buffer, likewise.
std::vector<Bytes> cut(const Collective& c, const Range& range, std::size_t largest) {
  const auto width = static_cast<std::int64_t>(model::bytes_of(c.dtype));
  return cut(
      {c.data + range.begin * width, static_cast<std::size_t>(range.count * width)}, largest);
}

class InTurn final : public Operation {
public:
  InTurn(std::unique_ptr<Operation> first, std::unique_ptr<Operation> second)
      : first_(std::move(first)),
        second_(std::move(second)) {}

  bool advance() override { return first_->done() ? second_->advance() : first_->advance(); }

  bool done() const override { return second_->done(); }

private:
  std::unique_ptr<Operation> first_, second_;
};

/// Lists the steps of a member in a ring. Share `first` starts here. Each lower share arrives, and
/// all but the last are passed on. Shares go round `window` pieces at a time: with few slots,
/// pieces are passed on before all own are sent.
std::vector<Step> ring_steps(
    int members, const Collective& c, int first, std::size_t piece_bytes, std::size_t window) {
  std::vector<std::vector<Bytes>> shares;  // in the order in which they come by
  std::size_t longest = 0;
  for (int step = 0; step < members; ++step) {
    shares.push_back(cut(c, share_of(c.elements, members, first - step), piece_bytes));
    longest = std::max(longest, shares.back().size());
  }
  std::vector<Step> steps;
  for (std::size_t begin = 0; begin < longest; begin += std::min(window, longest))
    for (std::size_t s = 0; s < shares.size(); ++s)
      for (std::size_t k = begin; k < shares[s].size() && k - begin < window; ++k)
        steps.push_back({shares[s][k], s > 0, s + 1 < shares.size()});
  return steps;
}

/// broadcast and reduce are chains from and to the root: while piece k + 1 arrives, piece k is
/// passed on. The order of a sum is that of the ring, so its bits repeat; only the root may change
/// its buffer.
///
/// all_gather and reduce_scatter are rings. Every member sends its own share, then hands on what
/// arrives. The sum of share i grows from member i + 1 round to member i; each adds its own part,
/// in host memory in its buffer. The sends of a ring are not limited: if everyone waited to send
/// before receiving it would stand still.
Route route_of(const LaneMemory& lane, Kind kind, const Membership& self, const Collective& c) {
  const int members = self.size(),
            position = (self.index - self.root + members) % members;  // from the root
  const auto neighbour = [&](int distance) {
    return (*self.ranks)[(self.index + distance + members) % members];
  };
  const int forwards = kind == Kind::reduce ? -1 : 1;
  Route route{.from = neighbour(-forwards),
      .to = neighbour(forwards),
      .sums = is_reducing(kind),
      .dtype = c.dtype,
      .may_overwrite = kind == Kind::reduce_scatter || position == 0,
      .piece_bytes = lane.piece_bytes};
  std::size_t window = unlimited;
  if (lane.copier != nullptr && (route.sums || !lane.direct)) {
    const std::size_t half = lane.slots.size() / lane.piece_bytes / 2 * lane.piece_bytes;
    route.landing = lane.slots.first(half);
    route.loading = lane.slots.subspan(half, half);
    route.copier = lane.copier;
    window = route.ahead;
  } else if (route.sums) {
    if (lane.slots.empty())
      throw LogicError("a reduction runs on a lane that was given no staging memory");
    route.landing = lane.slots;
    route.ahead = host_slots;
  } else if (members == 2) {
    // Pieces let a rank pass on what has come while more comes: two members would only pay for
    // handshakes.
    route.piece_bytes = largest_message;
  }
  if (!is_rooted(kind)) {
    const int first = route.sums ? position - 1 : position;
    route.steps = ring_steps(members, c, first, route.piece_bytes, window);
    return route;
  }
  const int place = route.sums ? members - 1 - position : position;  // in the chain
  route.open_sends = usual_ahead;
  for (const Bytes piece : cut(c, {0, c.elements}, route.piece_bytes))
    route.steps.push_back({piece, place > 0, place + 1 < members});
  return route;
}

/// This rank's side of a message; the payload is the tag.
Route route_of(const LaneMemory& lane, const Message& m) {
  Route route{.tag = static_cast<int>(m.payload), .from = m.peer, .to = m.peer};
  if (lane.copier == nullptr || lane.direct) {
    // Up to 32 messages, all open, keep a slow link busy while one shakes hands: 12.3 of 12.5 MB/s
    // over TCP, else 11.4.
    route.piece_bytes = std::clamp((m.bytes + 31) / 32, std::size_t{1} << 20, largest_message);
    route.ahead = unlimited;
  } else {
    // It has all slots: half of them are with MPI, the others are being copied.
    route.piece_bytes = lane.piece_bytes;
    route.ahead = lane.slots.size() / lane.piece_bytes / 2;
    route.open_sends = route.ahead - 1;
    route.landing = route.loading = lane.slots;
    route.copier = lane.copier;
  }
  for (const Bytes piece : cut({m.data, m.bytes}, route.piece_bytes))
    route.steps.push_back({piece, !m.send, m.send});
  return route;
}

class MpiTransport final : public Transport {
public:
  MpiTransport(MPI_Comm world,
      const schedule::Program& program,
      const LaneMemories& lanes,
      const std::string& name)
      : Transport(name, rank_in(world, program), program),
        lanes_(lanes) {
    for (const LaneMemory& lane : lanes)
      require_slots(lane);
    // Communicators of our own, so that no foreign messages match ours; failures come back as
    // codes.
    for (std::size_t kind = 0; kind < comms_.size(); ++kind) {
      MPI_Comm& comm = comms_[kind].comm;
      check_mpi(MPI_Comm_dup(world, &comm), "MPI_Comm_dup");
      check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      count_sends(comm, sent_, static_cast<schedule::Traffic>(kind));
    }
  }

  /// Two: the handshake of the next message passes while the one before it does. Staged ones share
  /// slots.
  int messages_at_once() const override {
    const auto stages = [](const LaneMemory& lane) { return lane.copier && !lane.direct; };
    return std::ranges::any_of(lanes_, stages) ? 1 : 2;
  }

private:
  /// A ring stands still with fewer slots (docs/decisions.md, 6).
  static void require_slots(const LaneMemory& lane) {
    const std::size_t slots = lane.slots.size() / lane.piece_bytes;
    if (lane.copier != nullptr && slots < 4 * usual_ahead)
      throw LogicError("{} bytes of pinned memory hold {} slots of {} bytes; 16 are needed",
          lane.slots.size(),
          slots,
          lane.piece_bytes);
  }

  [[nodiscard]] Started start_transfer(Lane lane, const Message& message) override {
    return begun(passage(route_of(lanes_[index_of(lane)], message), message.payload));
  }

  [[nodiscard]] Started start_transfer(
      Lane lane, Kind kind, const Membership& self, const Collective& c) override {
    constexpr int first_tag = 64;  // after those of messages, which are their payloads
    const auto part = [&](Kind what) {
      Route route = route_of(lanes_[index_of(lane)], what, self, c);
      route.tag = first_tag + c.communicator * schedule::lanes + static_cast<int>(lane);
      return passage(std::move(route), c.payload);
    };
    if (kind != Kind::all_reduce)
      return begun(part(kind));
    return begun(std::make_unique<InTurn>(part(Kind::reduce_scatter), part(Kind::all_gather)));
  }

  Started passage(Route route, schedule::Payload payload) const {
    route.comm = comms_[index_of(schedule::traffic_of(payload))].comm;
    return make_passage(std::move(route));
  }

  /// Does all that can be done without waiting.
  static Started begun(Started operation) {
    operation->advance();
    return operation->done() ? nullptr : std::move(operation);
  }

  LaneMemories lanes_;
  /// For each kind of traffic, by which MPI's calls count (sends.hpp). Lanes share them; their tags
  /// differ.
  std::array<OwnComm, schedule::traffic_kinds> comms_;
};
}  // namespace

std::unique_ptr<Transport> make_transport(MPI_Comm world,
    const schedule::Program& program,
    const LaneMemories& lanes,
    const std::string& name) {
  return std::make_unique<MpiTransport>(world, program, lanes, name);
}

std::unique_ptr<Transport> make_transport(
    MPI_Comm world, const schedule::Program& program, Bytes staging) {
  constexpr std::size_t share = host_slots * schedule::piece_bytes;
  const auto& actions = program.ranks[program.rank_of(rank_in(world, program))].actions;
  LaneMemories lanes;
  for (const auto& row : schedule::table_of<Lane>) {
    const bool reduces = std::ranges::any_of(actions,
        [&](const schedule::Action& a) { return a.lane == row.value && is_reducing(a.kind); });
    if (!reduces)
      continue;
    if (staging.size() < share)
      throw LogicError("{} bytes of staging memory are left for lane {}, which needs {}",
          staging.size(),
          row.name,
          share);
    lanes[index_of(row.value)].slots = staging.first(share);
    staging = staging.subspan(share);
  }
  return make_transport(world, program, lanes, "mpi");
}
}  // namespace minitaw::comm::mpi
