#pragma once

#include <vector>

#include "schedule/program.hpp"

namespace minitaw::comm {

/// The communicator of that index; throws LogicError if there is none.
[[nodiscard]] const schedule::Communicator&
communicator_at(const std::vector<schedule::Communicator>& communicators, int index);

/// Place of a rank in a communicator's ring; throws LogicError if it is not a member.
[[nodiscard]] int member_index(const schedule::Communicator& communicator, int rank);

}  // namespace minitaw::comm
