#include "comm/members.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace minitaw::comm {

const schedule::Communicator& communicator_at(const std::vector<schedule::Communicator>& communicators,
                                              int index) {
  if (index < 0 || static_cast<std::size_t>(index) >= communicators.size())
    throw LogicError(fmt::format("the program has no communicator {}", index));
  return communicators[static_cast<std::size_t>(index)];
}

int member_index(const schedule::Communicator& communicator, int rank) {
  const auto found = std::ranges::find(communicator.ranks, rank);
  if (found == communicator.ranks.end())
    throw LogicError(fmt::format("rank {} is not a member of communicator {}", rank, communicator.name));
  return static_cast<int>(found - communicator.ranks.begin());
}

}  // namespace minitaw::comm
