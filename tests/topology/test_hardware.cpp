// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <hwloc.h>
#include "fixtures.hpp"
#include "topology/hardware.hpp"

namespace minitaw::topology {
namespace {
using testing::HasSubstr;

std::string object(
    const std::string& type, const std::string& rest, const std::string& inside = "") {
  static int number = 1000;
  return fmt::format(
      "<object type=\"{}\" gp_index=\"{}\" {}>{}</object>\n", type, ++number, rest, inside);
}

/// A PCI device of this class: 0302 is a GPU, 0207 an adapter of InfiniBand, 0200 one of Ethernet.
std::string pci(const std::string& bus, const std::string& type, const std::string& inside = "") {
  return object("PCIDev",
      fmt::format(
          R"(pci_busid="0000:{}:00.0" pci_type="{} [15b3:1021] [0000:0000] 00" pci_link_speed="0")",
          bus,
          type),
      inside);
}

std::string named(const std::string& name, int type) {
  return object("OSDev", fmt::format(R"(name="{}" osdev_type="{}")", name, type));
}

std::string fabric(const std::string& bus, const std::string& name) {
  return pci(bus, "0207", named(name, 3));
}

std::string net(const std::string& bus, const std::string& name) {
  return pci(bus, "0200", named(name, 2));
}

std::string under(int bus, const std::string& inside) {
  return object("Bridge",
      fmt::format(
          R"(bridge_type="0-1" depth="0" bridge_pci="0000:[{:02x}-{:02x}]")", bus, bus + 15),
      inside);
}

/// A node of hwloc's own making, as it writes it, with what hangs on the first and on the second
/// package.
std::string node(const char* shape, const std::vector<std::string>& devices = {}) {
  hwloc_topology_t made = nullptr;
  char* text = nullptr;
  int size = 0;
  hwloc_topology_init(&made);
  hwloc_topology_set_synthetic(made, shape);
  hwloc_topology_load(made);
  hwloc_topology_export_xmlbuffer(made, &text, &size, 0);
  std::string xml = text;
  hwloc_free_xmlbuffer(made, text);
  hwloc_topology_destroy(made);
  for (std::size_t i = 0; i < devices.size(); ++i)
    xml.insert(xml.find("<object",
                   xml.find(fmt::format("<object type=\"Package\" os_index=\"{}\"", i)) + 1),
        "<info name=\"CPUModel\" value=\"Xeon X\"/>" + devices[i]);
  return xml;
}

constexpr const char* small = "package:2 numa:1 core:2 pu:1";

TEST(Hardware, TheProcessorIsNamedAndCounted) {
  const std::string xml = node("package:2 numa:2 core:3 pu:2");
  EXPECT_EQ(look(xml).cpu, "unknown, 2 sockets, 12 cores, 24 threads");
}

TEST(Hardware, ThisMachineHasAProcessor) {
  EXPECT_THAT(look().cpu, HasSubstr("thread"));
}

/// A folder for what hwloc does not tell of adapters.
struct Adapters : test::InFolder {
  /// A port "mlx5_0:1", or an interface "hsn0".
  void port(const std::string& name, const char* state, int gbit) const {
    const std::size_t colon = name.find(':');
    const bool net = colon == std::string::npos;
    const auto folder = folder_ / (net ? "net" : "infiniband") / name.substr(0, colon) /
                        (net ? "" : "ports/" + name.substr(colon + 1));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / (net ? "operstate" : "state")) << state << "\n";
    std::ofstream(folder / (net ? "speed" : "rate"))
        << (net ? 1000 * gbit : gbit) << (net ? "\n" : " Gb/sec (4X HDR)\n");
  }

  [[nodiscard]] std::string adapters() const { return look(xml, folder_).adapters; }

  std::string xml;
};

TEST_F(Adapters, TheFastestCarryMessagesUnlessNodesArePartsOfAMachine) {
  xml = node(small, {fabric("11", "mlx5_0") + fabric("12", "mlx5_1") + fabric("13", "mlx5_10")});
  for (const char* name : {"mlx5_0:1", "mlx5_1:1", "mlx5_1:2"})
    port(name, "4: ACTIVE", 400);
  port("mlx5_10:1", "4: ACTIVE", 100);
  EXPECT_EQ(adapters(), "mlx5_0:1,mlx5_1:1,mlx5_1:2") << "the slow one is for storage";
  setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  EXPECT_EQ(adapters(), "");
  unsetenv("MINITAW_SHAPED_LINKS");
}

/// Two GPUs with an adapter each behind switches of their own, a third one of storage, and what is
/// down.
TEST_F(Adapters, BehindAnySwitchCountUnlessSlowOrDown) {
  xml = node(small,
      {under(0x10, fabric("11", "mlx5_2") + fabric("12", "mlx5_3")) +
              under(0x20, pci("21", "0302") + fabric("22", "mlx5_1")),
          under(0x40, pci("41", "0302") + fabric("42", "mlx5_0"))});
  for (const char* name : {"mlx5_0:1", "mlx5_1:1"})
    port(name, "4: ACTIVE", 200);
  port("mlx5_1:2", "1: DOWN", 200);
  port("mlx5_2:1", "4: ACTIVE", 100);
  port("mlx5_3:1", "5: ACTIVE_DEFER", 400);
  EXPECT_EQ(look(xml, folder_).cpu, "Xeon X, 2 sockets, 4 cores, 4 threads");
  EXPECT_EQ(adapters(), "mlx5_0:1,mlx5_1:1");
}

TEST(Hardware, ANodeWithFewerAdaptersCounts) {
  std::vector<Site> sites(3);
  sites[0].adapters = "mlx5_0:1,mlx5_1:1,mlx5_2:1";
  sites[1].adapters = "mlx5_1:1,mlx5_0:1";
  sites[2].adapters = "mlx5_0:1,mlx5_1:1,mlx5_3:1";
  EXPECT_EQ(fewest_adapters(sites), 2);
  sites[2].adapters = "";
  EXPECT_EQ(fewest_adapters(sites), 1) << "none is known";
}

TEST_F(Adapters, OfSlingshotCount) {
  xml = node(small, {net("11", "hsn0") + net("12", "eth0"), net("41", "hsn1") + net("43", "hsn3")});
  for (const char* name : {"eth0", "hsn0", "hsn1"})
    port(name, "up", 200);
  port("hsn3", "down", 200);
  EXPECT_EQ(adapters(), "hsn0:1,hsn1:1");
}
}  // namespace
}  // namespace minitaw::topology
