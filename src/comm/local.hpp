#pragma once

#include "comm/transport.hpp"

namespace minitaw::comm {

/// Transport of a job of one rank: every collective has one member and leaves the data as it is. A message
/// has nowhere to go and throws LogicError.
class SoloTransport final : public Transport {
public:
  [[nodiscard]] int rank() const override { return 0; }

  using Transport::exchange;
  void exchange(schedule::Lane lane, std::span<const Message> batch, const Received& received) override;
  void broadcast(schedule::Lane, const Collective&) override {}
  void reduce(schedule::Lane, const Collective&) override {}
  void all_gather(schedule::Lane, const Collective&) override {}
  void reduce_scatter(schedule::Lane, const Collective&) override {}
  void all_reduce(schedule::Lane, const Collective&) override {}

  [[nodiscard]] schedule::ByteMatrix sent() const override { return schedule::ByteMatrix(1); }
  void reset_counters() override {}
  void cancel() override {}
};

}  // namespace minitaw::comm
