#include "comm/nccl/communicators.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::nccl {
namespace {

struct MaybeId {
  UniqueId id{};
  int valid = 0;
};

MaybeId new_id(Api& api) {
  try {
    return {api.unique_id(), 1};
  } catch (const Error& error) {
    fmt::print(stderr, "minitaw: {}\n", error.what());
    return {};
  }
}

/// Rank 0's id on all ranks; if it could not make one, all throw.
UniqueId agreed_id(MPI_Comm world, int rank, Api& api) {
  MaybeId told = rank == 0 ? new_id(api) : MaybeId{};
  mpi::check(MPI_Bcast(&told, sizeof(told), MPI_BYTE, 0, world), "telling NCCL's unique id");
  if (told.valid == 0) throw Error("rank 0 got no unique id from NCCL");
  return told.id;
}

/// Colour of this rank in a round: the place of its team, or -1.
int colour_in(const std::vector<Team>& teams, const std::vector<int>& round, int rank) {
  const auto found = std::ranges::find_if(
      round, [&](int t) { return std::ranges::count(teams[static_cast<std::size_t>(t)].ranks, rank) > 0; });
  return found == round.end() ? -1 : static_cast<int>(found - round.begin());
}

}  // namespace

Communicators::Communicators(MPI_Comm world, const schedule::Program& program, Api& api, Launcher& launcher,
                             std::chrono::seconds limit)
    : api_(api), launcher_(launcher) {
  const std::vector<Team> teams = teams_of(program);
  if (teams.empty()) return;
  const Place place{mpi::rank_in(world, program), static_cast<int>(program.ranks.size()),
                    std::chrono::steady_clock::now() + limit};
  const UniqueId id = agreed_id(world, place.rank, api);
  try {
    make(id, teams, place);
  } catch (...) {
    abort();
    throw;
  }
}

void Communicators::make(const UniqueId& id, const std::vector<Team>& teams, const Place& place) {
  launcher_.use([&] { world_ = api_.init(place.ranks, id, place.rank); });
  launcher_.wait_ready(*world_, place.limit);
  for (const std::vector<int>& round : rounds(teams)) split(teams, round, place);
  std::ranges::sort(members_, {}, [&](const Member& m) { return std::ranges::find(teams, m.team); });
}

void Communicators::split(const std::vector<Team>& teams, const std::vector<int>& round, const Place& place) {
  const int colour = colour_in(teams, round, place.rank);
  // A member from the start, and in any case: NCCL writes to it until all ranks are ready.
  Member& member = members_.emplace_back();
  if (colour >= 0) {
    member.team = teams[static_cast<std::size_t>(round[static_cast<std::size_t>(colour)])];
    member.index =
        static_cast<int>(std::ranges::find(member.team.ranks, place.rank) - member.team.ranks.begin());
  }
  launcher_.use([&] { member.communicator = world_->split(colour, member.index); });
  launcher_.wait_ready(*world_, place.limit);
  if (colour < 0) members_.pop_back();
  else launcher_.wait_ready(*member.communicator, place.limit);
}

Communicators::~Communicators() {
  if (launcher_.cancelled()) return;
  try {
    close();
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw: {}\n", error.what());
    abort();
  }
}

void Communicators::close() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto end = [&](std::unique_ptr<Communicator>& communicator) {
    if (communicator == nullptr) return;
    launcher_.use([&] { communicator->close(); });
    launcher_.wait_ready(*communicator, limit);
    launcher_.use([&] { communicator.reset(); });
  };
  for (Member& member : members_) end(member.communicator);
  end(world_);
}

const Member& Communicators::find(const Use& use) const {
  for (const Member& member : members_)
    if (member.team.use == use) return member;
  throw LogicError(fmt::format("the program has no {} of this rank", text(use)));
}

void Communicators::poll() {
  // Still under way is no failure.
  for (const Member& member : members_) (void)member.communicator->ready();
}

void Communicators::abort() noexcept {
  try {
    Group group(api_);
    // First the one that others may still be splitting from.
    if (world_ != nullptr) world_->abort();
    for (const Member& member : members_)
      if (member.communicator != nullptr) member.communicator->abort();
    group.end();
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw: {}\n", error.what());
  }
}

}  // namespace minitaw::comm::nccl
