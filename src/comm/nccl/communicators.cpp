#include "comm/nccl/communicators.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/mpi/check.hpp"
#include "comm/mpi/rank.hpp"

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
  const int rank = mpi::rank_in(world, program);
  const std::vector<Team> teams = teams_of(program);
  if (teams.empty()) return;
  const UniqueId id = agreed_id(world, rank, api);
  const Time until = std::chrono::steady_clock::now() + limit;
  launcher_.use([&] { world_ = api.init(static_cast<int>(program.ranks.size()), id, rank); });
  launcher_.wait_ready(*world_, until);
  for (const std::vector<int>& round : rounds(teams)) split(teams, round, rank, until);
  std::ranges::sort(members_, {}, [&](const Member& m) { return std::ranges::find(teams, m.team); });
}

void Communicators::split(const std::vector<Team>& teams, const std::vector<int>& round, int rank,
                          Time limit) {
  const int colour = colour_in(teams, round, rank);
  Member member;
  if (colour >= 0) {
    member.team = teams[static_cast<std::size_t>(round[static_cast<std::size_t>(colour)])];
    member.index = static_cast<int>(std::ranges::find(member.team.ranks, rank) - member.team.ranks.begin());
  }
  launcher_.use([&] { member.communicator = world_->split(colour, member.index); });
  launcher_.wait_ready(*world_, limit);
  if (colour < 0) return;
  launcher_.wait_ready(*member.communicator, limit);
  members_.push_back(std::move(member));
}

Communicators::~Communicators() {
  if (launcher_.cancelled()) return;
  try {
    close();
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw: {}\n", error.what());
  }
}

void Communicators::close() {
  const Time limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto end = [&](std::unique_ptr<Communicator>& communicator) {
    if (communicator == nullptr) return;
    launcher_.use([&] { communicator->close(); });
    launcher_.wait_ready(*communicator, limit);
    launcher_.use([&] { communicator.reset(); });
  };
  for (Member& member : members_) end(member.communicator);
  end(world_);
}

const Member& Communicators::find(schedule::Lane lane, int communicator) const {
  for (const Member& member : members_)
    if (member.team.lane == lane && member.team.communicator == communicator) return member;
  throw LogicError(fmt::format("the program has no {} on lane {}",
                               communicator < 0 ? std::string("messages of this rank")
                                                : fmt::format("collectives on communicator {}", communicator),
                               schedule::name_of(lane)));
}

void Communicators::poll() {
  // Still under way is no failure.
  for (const Member& member : members_) (void)member.communicator->ready();
}

void Communicators::abort() noexcept {
  try {
    Group group(api_);
    for (const Member& member : members_) member.communicator->abort();
    if (world_ != nullptr) world_->abort();
    group.end();
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw: {}\n", error.what());
  }
}

}  // namespace minitaw::comm::nccl
