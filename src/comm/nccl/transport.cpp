// SPDX-License-Identifier: BSD-3-Clause
#include "comm/nccl/transport.hpp"
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <mutex>
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::nccl {
namespace {
using schedule::Action, schedule::Kind, schedule::Lane;
using Clock = std::chrono::steady_clock;
using Work = std::function<void()>;

/// Inputs and gradients leave on lanes of their own.
Lane lane_of(schedule::Payload payload) {
  return schedule::lane_of(Kind::send, payload, false);
}

/// Calls visit(action, from, to) for both sides of every message of the program.
template <class Visit>
void for_each_message(const schedule::Program& program, const Visit& visit) {
  for (int rank = 0; rank < static_cast<int>(program.ranks.size()); ++rank)
    for (const Action& a : program.ranks[rank].actions)
      if (is_point_to_point(a.kind))
        visit(a, a.kind == Kind::send ? rank : a.peer, a.kind == Kind::send ? a.peer : rank);
}

/// Colours of ranks, for inputs or gradients: two that exchange messages have different ones.
std::vector<unsigned> colours(const schedule::Program& program, Lane sender) {
  std::vector<std::set<std::size_t>> neighbours(program.ranks.size());
  for_each_message(program, [&](const Action& a, int from, int to) {
    if (lane_of(a.payload) != sender)
      return;
    neighbours[from].insert(to);
    neighbours[to].insert(from);
  });
  std::vector<unsigned> colours;
  for (const std::set<std::size_t>& others :
      neighbours) {  // each gets the first that no neighbour has yet
    std::set<unsigned> taken;
    for (const std::size_t other : others)
      if (other < colours.size())
        taken.insert(colours[other]);
    unsigned free = 0;
    while (taken.contains(free))
      ++free;
    colours.push_back(free);
  }
  return colours;
}

/// Work in a group of NCCL's; the group is ended even on the way out of an error.
void in_group(Api& api, const Work& work) {
  api.group_start();
  try {
    work();
  } catch (...) {
    try {
      api.group_end();
    } catch (const std::exception&) {
      // the error that brought us here says more
    }
    throw;
  }
  api.group_end();
}

struct Member {
  CommunicatorPlan plan;
  int number = -1;             ///< of the plan
  int colour = -1;             ///< of those who split it off together
  int index = 0, members = 1;  ///< this rank's place among them
  std::unique_ptr<Communicator> communicator{};

  int index_of(int rank) const {
    return static_cast<int>(std::ranges::find(plan.ranks, rank) - plan.ranks.begin());
  }
};

/// Rank 0's unique id on all ranks; if it could not make one, all throw.
UniqueId agreed_id(MPI_Comm world, int rank, Api& api) {
  struct {
    UniqueId id{};
    int valid = 0;
  } agreed;

  try {
    if (rank == 0)
      agreed = {api.unique_id(), 1};
  } catch (const Error& error) {
    fmt::print(stderr, "minitaw: {}\n", error.what());
  }
  mpi::check_mpi(
      MPI_Bcast(&agreed, sizeof(agreed), MPI_BYTE, 0, world), "telling NCCL's unique id");
  if (agreed.valid == 0)
    throw Error("rank 0 got no unique id from NCCL");
  return agreed.id;
}

/// The NCCL communicators of one rank, and all threads' way to NCCL, which wants one call at a
/// time: a lane keeps its turn until NCCL has put its work on the device queue. The watchdog gets
/// in between, while a lane asks for NCCL.
class Communicators {
public:
  /// Collective over `world`: the planned communicators are split from one. Throws Error if NCCL is
  /// not ready in time.
  Communicators(
      MPI_Comm world, const schedule::Program& program, Api& api, const WaitPolicy& policy)
      : api_(api),
        policy_(policy) {
    const std::vector<CommunicatorPlan> plans = plan_communicators(program);
    if (plans.empty())
      return;
    const int rank = mpi::rank_in(world), own = program.rank_of(rank);
    const int count = static_cast<int>(plans.size());
    for (int number = 0; number < count; ++number) {
      const CommunicatorPlan& plan = plans[number];
      if (std::ranges::count(plan.ranks, own) == 0)
        continue;
      Member& member = members_.emplace_back(plan, number);
      const int replica = program.replica_of(rank);
      if (plan.among_replicas(program)) {
        member.colour = own;
        member.index = replica;
        member.members = program.replicas;
      } else {
        member.colour = replica * count + number;
        member.index = member.index_of(own);
        member.members = static_cast<int>(plan.ranks.size());
      }
    }
    const auto limit = Clock::now() + std::chrono::seconds(300);
    const UniqueId id = agreed_id(world, rank, api);
    try {
      use([&] { world_ = api_.init(program.job_ranks(), id, rank); });
      wait_ready(*world_, limit);
      for (const std::vector<int>& round : rounds(plans))
        split(round, limit);
    } catch (...) {
      abort();
      throw;
    }
  }

  Communicators& operator=(Communicators&&) = delete;

  /// Orderly, on all ranks, unless something fails.
  ~Communicators() {
    try {
      const auto limit = Clock::now() + std::chrono::seconds(30);
      for (Member& member : members_)
        close(member.communicator, limit);
      close(world_, limit);
    } catch (const std::exception& error) {
      fmt::print(stderr, "minitaw: {}\n", error.what());
      abort();
    }
  }

  /// All ranks have them in the same order.
  const std::vector<Member>& members() const { return members_; }

  /// The one whose plan fits. Throws LogicError if the program has no such for this rank.
  template <class Fits>
  const Member& find(const Fits& fits) const {
    const auto found = std::ranges::find_if(members_, fits, &Member::plan);
    if (found == members_.end())
      throw LogicError("the program has no such communication of this rank");
    return *found;
  }

  /// Launches all calls of `issue` as one operation; returns when it is on its queue.
  void launch(Communicator& communicator, const Work& issue) {
    const std::scoped_lock turn(turn_);
    use([&] { in_group(api_, issue); });
    wait_ready(communicator, Clock::time_point::max());
  }

  /// Throws Error if NCCL reports a failure; does nothing while another thread calls NCCL.
  void poll() {
    const std::unique_lock lock(calls_, std::try_to_lock);
    if (!lock)
      return;
    for (const Member& member : members_)
      (void)member.communicator->ready();  // still under way is no failure
  }

private:
  /// A call that is no group; `call` is the only one to use NCCL meanwhile.
  void use(const Work& call) {
    const std::scoped_lock lock(calls_);
    call();
  }

  void wait_ready(Communicator& communicator, Clock::time_point limit) {
    for (Backoff backoff(policy_);; backoff.once()) {
      bool ready = false;
      use([&] { ready = communicator.ready(); });
      if (ready)
        return;
      if (Clock::now() > limit)
        throw Error("NCCL was not ready in time: some rank is missing, or the network between "
                    "ranks does not work "
                    "(NCCL_DEBUG=INFO says more)");
    }
  }

  /// Splits off the communicators of a round. This rank has a plan of at most one of them.
  void split(const std::vector<int>& round, Clock::time_point limit) {
    const auto mine = std::ranges::find_if(members_,
        [&](const Member& member) { return std::ranges::count(round, member.number) > 0; });
    if (mine == members_.end()) {
      // Kept until all ranks are ready: NCCL writes to it.
      use([&] { unwanted_ = world_->split(-1, 0); });
      wait_ready(*world_, limit);
      unwanted_.reset();
      return;
    }
    use([&] { mine->communicator = world_->split(mine->colour, mine->index); });
    wait_ready(*world_, limit);
    wait_ready(*mine->communicator, limit);
  }

  void close(std::unique_ptr<Communicator>& communicator, Clock::time_point limit) {
    if (communicator == nullptr)
      return;
    use([&] { communicator->close(); });
    wait_ready(*communicator, limit);
    use([&] { communicator.reset(); });
  }

  void abort() noexcept {
    try {
      in_group(api_, [this] {
        // First the one that others may still be splitting from.
        for (Communicator* communicator : {world_.get(), unwanted_.get()})
          if (communicator != nullptr)
            communicator->abort();
        for (const Member& member : members_)
          if (member.communicator != nullptr)
            member.communicator->abort();
      });
    } catch (const std::exception& error) {
      fmt::print(stderr, "minitaw: {}\n", error.what());
    }
  }

  Api& api_;
  WaitPolicy policy_;
  std::mutex turn_;   ///< of a lane, for a whole operation
  std::mutex calls_;  ///< for a moment
  std::unique_ptr<Communicator> world_;
  std::vector<Member> members_;
  std::unique_ptr<Communicator> unwanted_;  ///< of a round that has no plan for this rank
};

constexpr std::size_t greeting_bytes = 16;

/// Scratch memory of each lane: lanes execute beside each other. A greeting for every rank of a
/// replica, or a float for every member of a communicator.
std::size_t lane_bytes(const schedule::Program& p) {
  const std::size_t most = std::max<std::size_t>(p.ranks.size(), p.replicas);
  return (most * greeting_bytes + 255) / 256 * 256;
}

class NcclTransport final : public Transport {
public:
  NcclTransport(MPI_Comm world, const schedule::Program& program, Api& api, const Options& options)
      : Transport("nccl", mpi::rank_in(world, program), program),
        ranks_(static_cast<int>(program.ranks.size())),
        own_(program_rank(rank())),
        queues_(options.queues),
        communicators_(world, program, api, options.policy) {
    if (options.scratch.size() < scratch_bytes(program))
      throw LogicError("NCCL's first messages need {} bytes of device memory, {} were given",
          scratch_bytes(program),
          options.scratch.size());
    for (const Member& member : communicators_.members())
      connect(member, options.scratch.data(), lane_bytes(program));
  }

  bool on_stream() const override { return true; }

  const char* bytes_source() const override { return "by formula"; }

  void poll() override { communicators_.poll(); }

private:
  [[nodiscard]] Started start_transfer(Lane lane, const Message& m) override {
    const Lane sender = lane_of(m.payload);
    const int peer = program_rank(m.peer);
    const auto link = m.send ? std::pair(own_, peer) : std::pair(peer, own_);
    const Member& member = communicators_.find([&](const CommunicatorPlan& plan) {
      return plan.lane == sender && plan.links.contains(link);
    });
    communicators_.launch(*member.communicator,
        [&] { issue(member, lane, message(m.send, m.data, m.bytes, member.index_of(peer))); });
    if (m.send)
      sent_.add(m.peer, schedule::traffic_of(m.payload), m.bytes);
    return nullptr;
  }

  /// Counts by formula: NCCL does not say which way a collective goes.
  [[nodiscard]] Started start_transfer(
      Lane lane, Kind kind, const Membership& self, const Collective& c) override {
    collective(communicators_.find([&](const CommunicatorPlan& plan) {
      return plan.lane == lane && plan.communicator == c.communicator;
    }),
        kind,
        self.root,
        c);
    const auto [to, elements] =
        schedule::ring_send(kind, c.elements, self.size(), self.index, self.root);
    sent_.add((*self.ranks)[to],
        schedule::traffic_of(c.payload),
        static_cast<std::uint64_t>(elements) * model::bytes_of(c.dtype));
    return nullptr;
  }

  /// The rank of the program that a rank of this replica has.
  int program_rank(int rank) const { return rank % ranks_; }

  static Call message(bool send, std::byte* data, std::size_t bytes, int peer) {
    return {send ? Kind::send : Kind::recv, data, data, bytes, Type::bytes, peer};
  }

  void issue(const Member& member, Lane lane, const Call& call) {
    member.communicator->issue(call, queues_[index_of(lane)]);
  }

  /// One group. NCCL has no call for unequal shares: a broadcast of each, or a reduction to its
  /// member.
  void collective(const Member& self, Kind kind, int root, const Collective& c) {
    const int members = self.members;
    const auto at = [&](const Range& range) {
      return c.data + range.begin * model::bytes_of(c.dtype);
    };
    const auto call =
        [&](Kind what, const std::byte* from, std::byte* to, std::int64_t count, int peer) {
          const Type type = c.dtype == model::Dtype::fp32 ? Type::fp32 : Type::bf16;
          issue(
              self, self.plan.lane, {what, from, to, static_cast<std::size_t>(count), type, peer});
        };
    communicators_.launch(*self.communicator, [&] {
      const bool gathers = kind == Kind::all_gather;
      const Range own = share_of(c.elements, members, self.index);
      if (!gathers && kind != Kind::reduce_scatter)
        return call(kind, c.data, c.data, c.elements, root);
      if (c.elements % members == 0)
        return call(kind, gathers ? at(own) : c.data, gathers ? c.data : at(own), own.count, -1);
      for (int member = 0; member < members; ++member)
        if (const Range part = share_of(c.elements, members, member); part.count > 0)
          call(gathers ? Kind::broadcast : Kind::reduce, at(part), at(part), part.count, member);
    });
  }

  /// A few bytes to and from every peer of a communicator, and every collective that the program
  /// calls on it, in one order on all ranks: NCCL connects ranks when they first talk, which must
  /// not happen in a step.
  void connect(const Member& member, std::byte* scratch, std::size_t lane_bytes) {
    const Lane caller = member.plan.lane;
    std::byte* const own_scratch = scratch + index_of(caller) * lane_bytes;
    for (const Kind kind : member.plan.kinds)
      collective(member, kind, 0, {.data = own_scratch, .elements = member.members});
    if (member.plan.links.empty())
      return;
    const Lane receiver = caller == Lane::inputs_send ? Lane::inputs_recv : Lane::gradients_recv;
    communicators_.launch(*member.communicator, [&] {
      // On a communicator of messages a rank only sends or only receives.
      for (std::size_t place = 0; const auto& [from, to] : member.plan.links) {
        const bool send = from == own_;
        if (!send && to != own_)
          continue;
        const Lane lane = send ? caller : receiver;
        std::byte* const data = scratch + index_of(lane) * lane_bytes + place;
        issue(member, lane, message(send, data, greeting_bytes, member.index_of(send ? to : from)));
        place += greeting_bytes;
      }
    });
  }

  const int ranks_, own_;  ///< of a replica; this one in its replica
  std::array<Queue, schedule::lanes> queues_;
  Communicators communicators_;
};
}  // namespace

std::vector<CommunicatorPlan> plan_communicators(const schedule::Program& program) {
  std::vector<CommunicatorPlan> plans;
  for (const Lane sender : {Lane::inputs_send, Lane::gradients_send}) {
    const std::vector<unsigned> colour = colours(program, sender);
    // Their communicator: the lowest bit in which the colours of both ranks differ, and its value
    // where messages leave.
    std::map<std::pair<int, unsigned>, std::set<std::pair<int, int>>> links;
    for_each_message(program, [&](const Action& a, int from, int to) {
      if (lane_of(a.payload) != sender)
        return;
      const unsigned own = colour[from], other = colour[to];
      const int bit = std::countr_zero(own ^ other);
      links[{bit, own >> bit & 1U}].insert({from, to});
    });
    for (auto& [bit, of_bit] : links) {
      std::set<int> ranks;
      for (const auto& [from, to] : of_bit)
        ranks.insert({from, to});
      plans.push_back(
          {.lane = sender, .ranks = {ranks.begin(), ranks.end()}, .links = std::move(of_bit)});
    }
  }
  std::map<std::pair<Lane, int>, std::set<Kind>> collectives;
  for (const auto& rank : program.ranks)
    for (const Action& a : rank.actions)
      if (is_collective(a.kind))
        collectives[{a.lane, a.communicator}].insert(a.kind);
  for (auto& [call, kinds] : collectives) {
    const schedule::Communicator& communicator = program.communicators[call.second];
    if (communicator.ranks.size() == 1)
      continue;
    plans.push_back({.lane = call.first,
        .communicator = call.second,
        .ranks = communicator.ranks,
        .kinds = std::move(kinds)});
    if (communicator.among_replicas())
      plans.back().ranks = list_of(indices(program.ranks));
  }
  return plans;
}

std::vector<std::vector<int>> rounds(const std::vector<CommunicatorPlan>& plans) {
  std::vector<std::vector<int>> rounds;
  std::vector<std::set<int>> busy;  // ranks, by round
  for (int p = 0; p < static_cast<int>(plans.size()); ++p) {
    const std::vector<int>& ranks = plans[p].ranks;
    const auto fits = [&](const std::set<int>& taken) {
      return std::ranges::none_of(ranks, [&](int rank) { return taken.contains(rank); });
    };
    const auto round = static_cast<std::size_t>(std::ranges::find_if(busy, fits) - busy.begin());
    if (round == busy.size()) {
      busy.emplace_back();
      rounds.emplace_back();
    }
    busy[round].insert(ranks.begin(), ranks.end());
    rounds[round].push_back(p);
  }
  return rounds;
}

std::size_t scratch_bytes(const schedule::Program& program) {
  return schedule::lanes * lane_bytes(program);
}

std::unique_ptr<Transport> make_transport(
    MPI_Comm world, const schedule::Program& program, Api& api, const Options& options) {
  return std::make_unique<NcclTransport>(world, program, api, options);
}
}  // namespace minitaw::comm::nccl
