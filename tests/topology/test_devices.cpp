// SPDX-License-Identifier: BSD-3-Clause
#include "fixtures.hpp"
#include "topology/devices.hpp"

namespace minitaw::topology {
namespace {
TEST(Devices, ASharedOneIsRefusedWithTheRanksThatShareIt) {
  const auto refusal = [](const std::vector<std::string>& of_ranks) {
    return test::refusal_of([&] { require_own_devices(of_ranks); });
  };
  EXPECT_EQ(refusal({"GPU-a", "GPU-b", "GPU-c"}), "");
  EXPECT_EQ(refusal({"", "", ""}), "") << "ranks of a host";
  EXPECT_THAT(refusal({"GPU-a", "GPU-b", "", "GPU-b"}),
      test::Says({"ranks 1 and 3", "GPU-b", "--share-devices"}));
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

TEST(Devices, OnlyAUuidOfTheWorldNeedsNoNode) {
  const auto of_node = [](const char* uuid) { return identity({1, "name", uuid}, 3); };
  EXPECT_EQ(of_node("GPU-3f2a"), "GPU-3f2a");
  EXPECT_EQ(of_node("PCI 0000:c1:00.0"), "PCI 0000:c1:00.0 of node 3");
  EXPECT_EQ(identity({}, 3), "") << "a host";
}

TEST(Devices, MemoryThatIsNotKnownIsNotPrintedAsNone) {
  EXPECT_EQ(text_of({2, "NVIDIA H200", "GPU-a", std::uint64_t{140} << 30}),
      "device 2, NVIDIA H200, 140.0 GiB");
  EXPECT_EQ(text_of({0, "SYCL of unknown name", "device 0"}),
      "device 0, SYCL of unknown name, of unknown memory");
}

TEST(Datasheet, KnowsDevicesByTheirWholeName) {
  for (const auto& [name, bf16, fp32] : {std::tuple{"NVIDIA H100 PCIe", 756, 51.0},
           {"NVIDIA H200", 989, 67.0},
           {"NVIDIA H200 NVL", 835, 60.0},
           {"NVIDIA A100-SXM4-80GB", 312, 19.5},
           {"NVIDIA A100 80GB PCIe", 312, 19.5}}) {
    const std::string unit = std::string("device 0, ") + name + ", 79.6 GiB";
    EXPECT_EQ(datasheet_peak(unit, true), bf16 * 1e12) << name;
    EXPECT_EQ(datasheet_peak(unit, false), fp32 * 1e12) << name;
  }
  for (const char* name : {"NVIDIA H20",
           "NVIDIA H100",
           "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
           "NVIDIA A1000",
           "host, 2 threads"})
    EXPECT_TRUE(std::isnan(datasheet_peak(name, true))) << name;
}

TEST(Datasheet, APeakIsThatOfAllRanksOfACase) {
  const std::string a100 = "device 0, NVIDIA A100-SXM4-80GB", l4 = "device 0, NVIDIA L4",
                    host = "host, 2 threads";
  EXPECT_EQ(common_peak(std::vector{l4, l4, l4}, true), 121e12);
  for (const auto& units :
      {std::vector{a100, l4, l4}, {a100, a100, l4}, {a100, host, a100}, {host, host}})
    EXPECT_TRUE(std::isnan(common_peak(units, true))) << units[1];
}
}  // namespace
}  // namespace minitaw::topology
