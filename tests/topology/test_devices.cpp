// SPDX-License-Identifier: BSD-3-Clause
#include "topology/devices.hpp"

#include <gmock/gmock.h>
#include "base/error.hpp"

namespace minitaw::topology {
namespace {
TEST(Devices, RanksOfANodeTakeThemInTurn) {
  EXPECT_EQ(device_of(0, 0), -1) << "no devices";
  for (const int visible : {1, 3, 8})
    for (int rank = 0; rank < 20; ++rank) {
      EXPECT_GE(device_of(rank, visible), 0);
      EXPECT_LT(device_of(rank, visible), visible);
      EXPECT_EQ(device_of(rank, visible), device_of(rank + visible, visible));
    }
  EXPECT_EQ(device_of(2, 4), 2);
}

TEST(Devices, OneOfItsOwnForEachRankIsFine) {
  require_own_devices(std::vector<std::string>{});
  require_own_devices(std::vector<std::string>{"GPU-a", "GPU-b", "GPU-c"});
  require_own_devices(std::vector<std::string>{"", "", ""});  // ranks of a host
}

TEST(Devices, ASharedOneIsRefusedWithTheRanksThatShareIt) {
  const std::vector<std::string> uuids{"GPU-a", "GPU-b", "", "GPU-b"};
  EXPECT_THAT([&] { require_own_devices(uuids); },
      testing::ThrowsMessage<InputError>(testing::AllOf(
          testing::HasSubstr("ranks 1 and 3 would share device GPU-b"), testing::HasSubstr("--share-devices"))));
}

TEST(Devices, WhatIsThereHasANameAndAnIdentity) {
  std::vector<std::string> uuids;
  for (const Device& device : visible_devices()) {
    EXPECT_EQ(device.index, static_cast<int>(uuids.size()));
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.bytes, 0U);
    uuids.push_back(device.uuid);
  }
  require_own_devices(uuids);
  EXPECT_EQ(runtime_version().empty(), driver_version().empty());
}
}  // namespace
}  // namespace minitaw::topology
