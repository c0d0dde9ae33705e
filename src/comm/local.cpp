#include "comm/local.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace minitaw::comm {

void SoloTransport::exchange(schedule::Lane, std::span<const Message> batch, const Received&) {
  if (batch.empty()) return;
  throw LogicError(fmt::format("a job of one rank was asked to exchange {} messages, the first with rank {}",
                               batch.size(), batch.front().peer));
}

}  // namespace minitaw::comm
