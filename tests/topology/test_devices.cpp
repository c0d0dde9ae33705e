// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include "base/error.hpp"
#include "topology/devices.hpp"

namespace minitaw::topology {
namespace {
TEST(Devices, RanksOfANodeTakeThemInTurn) {
  EXPECT_EQ(device_of(0, 0), -1) << "no devices";
  for (const int visible : {1, 3, 8})
    for (int rank = 0; rank < 20; ++rank) {
      EXPECT_TRUE(0 <= device_of(rank, visible) && device_of(rank, visible) < visible) << rank;
      EXPECT_EQ(device_of(rank, visible), device_of(rank + visible, visible));
    }
  EXPECT_EQ(device_of(2, 4), 2);
}

TEST(Devices, OneOfItsOwnForEachRankIsFine) {
  using Uuids = std::vector<std::string>;  // of ranks of a host: empty
  for (const Uuids& own : {Uuids{}, {"GPU-a", "GPU-b", "GPU-c"}, {"", "", ""}})
    EXPECT_NO_THROW(require_own_devices(own));
}

TEST(Devices, ASharedOneIsRefusedWithTheRanksThatShareIt) {
  const std::vector<std::string> uuids{"GPU-a", "GPU-b", "", "GPU-b"};
  EXPECT_THAT([&] { require_own_devices(uuids); },
      testing::ThrowsMessage<InputError>(
          testing::AllOf(testing::HasSubstr("ranks 1 and 3 would share device GPU-b"),
              testing::HasSubstr("--share-devices"))));
}

TEST(Devices, WhatIsThereHasANameAndAnIdentity) {
  std::vector<std::string> uuids;
  for (const Device& device : visible_devices()) {
    EXPECT_EQ(device.index, static_cast<int>(uuids.size()));
    EXPECT_TRUE(!device.name.empty() && device.bytes > 0);
    uuids.push_back(device.uuid);
  }
  require_own_devices(uuids);
  EXPECT_EQ(runtime_version().empty(), driver_version().empty());
}
}  // namespace
}  // namespace minitaw::topology
