// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <fmt/format.h>
#include <hwloc.h>
#include "fixtures.hpp"
#include "topology/hardware.hpp"
#include "topology/placement.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
namespace {
/// A node of hwloc's own making, as it writes it: two packages, `more` in the first one.
std::string node(const std::string& more = "") {
  hwloc_topology_t made = nullptr;
  char* text = nullptr;
  int size = 0;
  hwloc_topology_init(&made);
  hwloc_topology_set_synthetic(made, "package:2 numa:2 core:3 pu:2");
  hwloc_topology_load(made);
  hwloc_topology_export_xmlbuffer(made, &text, &size, 0);
  std::string xml = text;
  hwloc_free_xmlbuffer(made, text);
  hwloc_topology_destroy(made);
  return xml.insert(xml.find("<object", xml.find("Package")), more);
}

/// What the system has for a network adapter: mlx5_... of InfiniBand, others of Ethernet.
std::string adapter(const std::string& name) {
  static int number = 1000;
  return fmt::format(R"(<object type="OSDev" gp_index="{}" name="{}" osdev_type="{}"/>)",
      ++number,
      name,
      name.starts_with("mlx") ? 3 : 2);
}

TEST(Hardware, TheProcessorIsNamedAndCounted) {
  EXPECT_EQ(look(node()).cpu, "unknown, 2 sockets, 12 cores, 24 threads");
  EXPECT_EQ(look(node(R"(<info name="CPUModel" value="Xeon X"/>)")).cpu,
      "Xeon X, 2 sockets, 12 cores, 24 threads");
  for (const auto& [part, name] :
      {std::pair("0xd4f", "Neoverse-V2"), std::pair("0x001", "ARM implementer 0x41 part 0x001")})
    EXPECT_EQ(
        look(node(fmt::format(
                 R"(<info name="CPUImplementer" value="0x41"/><info name="CPUPart" value="{}"/>)",
                 part)))
            .cpu,
        std::string(name) + ", 2 sockets, 12 cores, 24 threads");
  EXPECT_THAT(look().cpu, testing::HasSubstr("thread")) << "this machine";
}

/// Processors 0 and 1 are hardware threads of core 0, and so on.
TEST(Hardware, HardwareThreadsOfACoreAreOneCore) {
  std::string xml = node();
  const Site all = look(xml);
  EXPECT_EQ(ranges_text(cores_of(std::vector{3, 2, 5, 23, 99}, all.core_of)), "2,4,22,99");
  EXPECT_EQ(ranges_text(all.cores), "0,2,4,6,8,10,12,14,16,18,20,22");
  const std::string allowed = R"(allowed_cpuset=")";
  const std::size_t begin = xml.find(allowed) + allowed.size();
  const Site some = look(xml.replace(begin, xml.find('"', begin) - begin, "0x0000001a"));
  EXPECT_EQ(ranges_text(some.cores), "0,2,4") << "of a control group";
  EXPECT_EQ(some.core_of, all.core_of);
}

/// A folder for what hwloc does not tell of adapters.
struct Adapters : test::InFolder {
  void port(const std::string& name, int number, const std::string& state, int gbit) const {
    const std::string folder = fmt::format("infiniband/{}/ports/{}/", name, number);
    write(folder + "state", state + "\n");
    write(folder + "rate", fmt::format("{} Gb/sec (4X HDR)\n", gbit));
  }

  void interface(const std::string& name, const std::string& state) const {
    write("net/" + name + "/operstate", state + "\n");
    write("net/" + name + "/speed", "200000\n");
  }
};

TEST_F(Adapters, TheFastestThatAreUpCarryMessagesUnlessNodesArePartsOfAMachine) {
  const std::string xml = node(adapter("mlx5_1") + adapter("mlx5_10") + adapter("mlx5_0"));
  port("mlx5_0", 1, "4: ACTIVE", 200);
  port("mlx5_0", 2, "5: ACTIVE_DEFER", 400);
  port("mlx5_1", 1, "4: ACTIVE", 200);
  port("mlx5_1", 2, "4: ACTIVE", 200);
  port("mlx5_1", 3, "1: DOWN", 200);
  port("mlx5_10", 1, "4: ACTIVE", 100);  // of storage
  EXPECT_EQ(look(xml, folder_).adapters, "mlx5_0:1,mlx5_1:1,mlx5_1:2");
  setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  EXPECT_EQ(look(xml, folder_).adapters, "");
  unsetenv("MINITAW_SHAPED_LINKS");
}

TEST_F(Adapters, OfSlingshotCount) {
  for (const char* name : {"eth0", "hsn0", "hsn1"})
    interface(name, "up");
  interface("hsn3", "down");
  EXPECT_EQ(
      look(node(adapter("hsn0") + adapter("eth0") + adapter("hsn1") + adapter("hsn3")), folder_)
          .adapters,
      "hsn0:1,hsn1:1");
}

TEST(Hardware, ANodeWithFewerAdaptersCounts) {
  std::vector<Site> sites(3, {.adapters = "mlx5_0:1,mlx5_1:1,mlx5_3:1"});
  sites[1].adapters = "mlx5_1:1,mlx5_0:1";
  EXPECT_EQ(fewest_adapters(sites), 2);
  sites[1].adapters = "";
  EXPECT_EQ(fewest_adapters(sites), 1) << "none is known";
}
}  // namespace
}  // namespace minitaw::topology
