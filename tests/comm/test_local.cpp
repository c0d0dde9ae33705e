#include "comm/local.hpp"

#include <gtest/gtest.h>

#include <array>

#include "base/error.hpp"

namespace minitaw::comm {
namespace {

TEST(SoloTransport, LeavesTheDataAsItIs) {
  SoloTransport transport;
  std::array<float, 3> values{1, 2, 3};
  const Collective all{
      0, 0, schedule::Payload::gradient, Scalar::fp32, reinterpret_cast<std::byte*>(values.data()), 3};
  transport.broadcast(schedule::Lane::operands, all);
  transport.reduce(schedule::Lane::operands_in, all);
  transport.all_gather(schedule::Lane::operands, all);
  transport.reduce_scatter(schedule::Lane::operands, all);
  transport.all_reduce(schedule::Lane::operands_in, all);
  transport.exchange(schedule::Lane::operands, {});
  EXPECT_EQ(values, (std::array<float, 3>{1, 2, 3}));
  EXPECT_EQ(transport.rank(), 0);
  EXPECT_EQ(transport.sent(), schedule::ByteMatrix(1));
}

TEST(SoloTransport, HasNobodyToTalkTo) {
  SoloTransport transport;
  const std::array<Message, 1> batch{};
  EXPECT_THROW(transport.exchange(schedule::Lane::operands, batch), LogicError);
}

}  // namespace
}  // namespace minitaw::comm
