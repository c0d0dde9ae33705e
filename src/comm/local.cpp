#include "comm/local.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace minitaw::comm {

Transport::Started SoloTransport::start(schedule::Lane, std::span<const Message> batch) {
  if (batch.empty()) return nullptr;
  throw LogicError(fmt::format("a job of one rank was asked to exchange {} messages, the first with rank {}",
                               batch.size(), batch.front().peer));
}

}  // namespace minitaw::comm
