#pragma once

#include "comm/transport.hpp"

namespace minitaw::comm {

/// Transport of a job of one rank: every collective has one member and leaves the data as it is. A message
/// has nowhere to go and throws LogicError.
class SoloTransport final : public Transport {
public:
  [[nodiscard]] int rank() const override { return 0; }

  [[nodiscard]] Started start(schedule::Lane lane, std::span<const Message> batch) override;
  [[nodiscard]] Started start(schedule::Lane, schedule::Kind, const Collective&) override { return nullptr; }

  [[nodiscard]] schedule::ByteMatrix sent() const override { return schedule::ByteMatrix(1); }
  void reset_counters() override {}
  void cancel() override {}
};

}  // namespace minitaw::comm
