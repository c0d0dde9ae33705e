#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "schedule/program.hpp"

namespace minitaw::comm::nccl {

/// What messages carry: what computing needs, or what it leaves. Each has lanes of its own.
enum class Cargo : std::uint8_t { operands, gradients };
inline constexpr int cargoes = 2;
[[nodiscard]] Cargo cargo_of(schedule::Payload payload);

/// A communicator for collectives: one of the program's, on one lane.
struct Calls {
  schedule::Lane lane = schedule::Lane::compute;
  int communicator = -1;
  friend bool operator==(const Calls&, const Calls&) = default;
};

/// A communicator for messages: those whose two ranks have colours that differ in `bit`, but in none below
/// it, and that leave a rank with `value` there.
struct Messages {
  Cargo cargo = Cargo::operands;
  int bit = 0;
  int value = 0;
  friend auto operator<=>(const Messages&, const Messages&) = default;
};

using Use = std::variant<Calls, Messages>;

/// For errors.
[[nodiscard]] std::string text(const Use& use);

/// Colours of ranks, for each cargo: two that exchange messages have different ones. They say which
/// communicator a message takes, such that no rank sends and receives on the same one
/// (docs/decisions/0007-nccl-communicators.md). The same on all ranks.
class Colours {
public:
  explicit Colours(const schedule::Program& program);
  /// Throws LogicError for two ranks that exchange no such messages, as far as colours tell.
  [[nodiscard]] Messages messages(schedule::Payload payload, int from, int to) const;
  /// How many there are.
  [[nodiscard]] int count(Cargo cargo) const;

private:
  std::array<std::vector<int>, cargoes> of_rank_;
};

/// Ranks that need an NCCL communicator.
struct Team {
  Use use;
  std::vector<int> ranks;  ///< a rank's place here is its NCCL rank; in ring order, for messages ascending
  std::vector<schedule::Kind> kinds;  ///< collectives that the program calls here
  friend bool operator==(const Team&, const Team&) = default;
};

/// The teams of a program: for messages, by cargo, bit and value, then for collectives, by lane and
/// communicator. The same on all ranks. Collectives of one rank need none.
[[nodiscard]] std::vector<Team> teams_of(const schedule::Program& program);

/// The teams in rounds: those of a round have no rank in common, so one ncclCommSplit makes them all. Indices
/// into `teams`, ascending within a round.
[[nodiscard]] std::vector<std::vector<int>> rounds(const std::vector<Team>& teams);

/// Ranks that `rank` sends to and receives from on a communicator for messages, ascending. Without messages
/// of a rank to itself, one of both is empty.
struct Peers {
  std::vector<int> to, from;
};
[[nodiscard]] Peers peers_of(const schedule::Program& program, const Colours& colours, int rank,
                             const Messages& use);

}  // namespace minitaw::comm::nccl
