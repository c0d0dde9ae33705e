#pragma once

#include <stdexcept>

namespace minitaw::comm {

/// A call of the network library failed, or a message was not what both sides had agreed on.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A wait was ended by Transport::cancel().
struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("communication was cancelled") {}
};

}  // namespace minitaw::comm
