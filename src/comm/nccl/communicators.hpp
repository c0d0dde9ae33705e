#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "schedule/program.hpp"

/// Which communicators of NCCL a program needs (docs/decisions/0007-nccl-communicators.md).
namespace minitaw::comm::nccl {

/// What a communicator is for. Collectives: one of the program's communicators, on one lane. Messages: those
/// whose two ranks have colours that differ in `bit`, but in none below it, and that leave a rank with
/// `value` there; operands and gradients have communicators of their own.
struct Use {
  schedule::Lane lane = schedule::Lane::compute;  ///< of messages: their sender's
  int communicator = -1;                          ///< of the program; -1: messages
  int bit = 0, value = 0;

  [[nodiscard]] bool collective() const { return communicator >= 0; }
  friend auto operator<=>(const Use&, const Use&) = default;
};

/// For errors.
[[nodiscard]] std::string text(const Use& use);

/// Colours of ranks, for operands and for gradients: two that exchange messages have different ones. They say
/// which communicator a message takes, such that no rank sends and receives on the same one. The same on all
/// ranks.
class Colours {
public:
  explicit Colours(const schedule::Program& program);
  /// Throws LogicError for two ranks that exchange no such messages, as far as colours tell.
  [[nodiscard]] Use messages(schedule::Payload payload, int from, int to) const;

private:
  std::map<schedule::Lane, std::vector<int>> of_rank_;  ///< by the sender's lane
};

/// A communicator that a program needs.
struct CommunicatorPlan {
  Use use;
  std::vector<int> ranks;               ///< in the order of NCCL's ranks: the ring's, for messages ascending
  std::set<schedule::Kind> kinds;       ///< collectives that the program calls here
  std::set<std::pair<int, int>> links;  ///< from and to, of messages
  friend bool operator==(const CommunicatorPlan&, const CommunicatorPlan&) = default;
};

/// Those for messages, operands first, by bit and value, then those for collectives, by lane and
/// communicator. The same on all ranks. Collectives of one rank need none.
[[nodiscard]] std::vector<CommunicatorPlan> plan_communicators(const schedule::Program& program);

/// The plans in rounds: those of a round have no rank in common, so one ncclCommSplit makes them all. Indices
/// into `plans`, ascending within a round.
[[nodiscard]] std::vector<std::vector<int>> rounds(const std::vector<CommunicatorPlan>& plans);

}  // namespace minitaw::comm::nccl
