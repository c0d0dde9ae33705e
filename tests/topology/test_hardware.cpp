// SPDX-License-Identifier: BSD-3-Clause
#include "topology/hardware.hpp"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>

namespace minitaw::topology {
namespace {
using testing::ElementsAre;

/// An environment in which nobody has named adapters.
struct Adapters : testing::Test {
  Adapters() { forget(); }
  ~Adapters() override { forget(), std::filesystem::remove_all(classes); }
  static void forget() {
    for (const char* name : {"UCX_NET_DEVICES", "FI_CXI_DEVICE_NAME", "NCCL_IB_HCA", "MINITAW_SHAPED_LINKS"}) unsetenv(name);
  }
  void file(const std::string& name, const std::string& line) const {
    std::filesystem::create_directories((classes / name).parent_path());
    std::ofstream(classes / name) << line << "\n";
  }
  void fabric(const std::string& name, int port, const std::string& state, const std::string& rate) const {
    file(fmt::format("infiniband/{}/ports/{}/state", name, port), state);
    file(fmt::format("infiniband/{}/ports/{}/rate", name, port), rate);
  }
  /// Of four ports, of which mlx5_2 is slower: those that carry messages if a variable is set.
  static std::vector<std::string> carrying(const char* variable = nullptr, const char* list = "") {
    forget();
    if (variable != nullptr) setenv(variable, list, 1);
    std::vector<std::string> names;
    for (const Port& port : carriers({{"mlx5_0", 1, 400}, {"mlx5_1", 1, 400}, {"mlx5_1", 2, 400}, {"mlx5_2", 1, 100}}))
      names.push_back(port.text());
    return names;
  }
  std::filesystem::path classes = std::filesystem::temp_directory_path() / "minitaw_test_classes";
};

TEST_F(Adapters, TheFastestCarryMessagesUnlessAListNamesOthers) {
  EXPECT_THAT(carrying(), ElementsAre("mlx5_0:1", "mlx5_1:1", "mlx5_1:2")) << "the slow one is for storage";
  EXPECT_THAT(carrying("UCX_NET_DEVICES", "all"), testing::SizeIs(3));
  EXPECT_THAT(carrying("UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1"), ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_THAT(carrying("UCX_NET_DEVICES", "mlx5_2:1"), ElementsAre("mlx5_2:1")) << "who names it means it";
  EXPECT_THAT(carrying("UCX_NET_DEVICES", "^mlx5_0:1"), ElementsAre("mlx5_1:1", "mlx5_1:2"));
  EXPECT_THAT(carrying("UCX_NET_DEVICES", "mlx5"), ElementsAre()) << "a whole name";
  EXPECT_THAT(carrying("NCCL_IB_HCA", "mlx5"), testing::SizeIs(4)) << "beginnings";
  EXPECT_THAT(carrying("NCCL_IB_HCA", "=mlx5"), ElementsAre());
  EXPECT_THAT(carrying("NCCL_IB_HCA", "=mlx5_1:2,mlx5_0"), ElementsAre("mlx5_0:1", "mlx5_1:2"));
  EXPECT_THAT(carrying("NCCL_IB_HCA", "^=mlx5_1,mlx5_0"), ElementsAre("mlx5_2:1"));
}

TEST(Hardware, CoresHaveTheirDomains) {
  const auto at = [](const char* cores) { return look(cores, "", {.synthetic = "package:2 numa:2 core:3 pu:2"}); };
  EXPECT_EQ(at("0").cpu, "unknown, 2 sockets, 12 cores, 24 threads");
  for (const auto& [cores, domains] : {std::pair{"0-5", "0"}, {"6", "1"}, {"5-6", "0-1"}, {"0,23", "0,3"}, {"unknown", ""}})
    EXPECT_EQ(at(cores).core_domains, domains) << cores;
  EXPECT_EQ(at("0").adapters, 1);
}

TEST(Hardware, ThisMachineHasSome) {
  EXPECT_THAT(look("0", "").cpu, testing::HasSubstr("thread"));
  EXPECT_GE(look("0", "").adapters, 1);
  const Site read = look("0", "", {.xml = describe()}), own = look("0", "");
  EXPECT_THAT((std::vector{read.cpu, read.core_domains, read.adapter}), ElementsAre(own.cpu, own.core_domains, own.adapter));
}

std::string object(const std::string& type, const std::string& rest, const std::string& inside = "") {
  static int number = 100;
  return fmt::format("<object type=\"{}\" gp_index=\"{}\" {}>{}</object>\n", type, ++number, rest, inside);
}
/// A PCI device that may be an adapter: 0302 is a GPU's class, 0207 one of InfiniBand, 0200 one of Ethernet.
std::string pci(const std::string& bus, const std::string& type, const std::string& inside = "") {
  return object("PCIDev", fmt::format(R"(pci_busid="0000:{}:00.0" pci_type="{} [15b3:1021] [0000:0000] 00" pci_link_speed="0")", bus, type), inside);
}
std::string fabric_at(const std::string& bus, const std::string& name) {
  return pci(bus, "0207", object("OSDev", fmt::format(R"(name="{}" osdev_type="3")", name)));
}
std::string under(int switch_bus, const std::string& inside) {
  return object("Bridge", fmt::format(R"(bridge_type="0-1" depth="0" bridge_pci="0000:[{0:02x}-{1:02x}]")", switch_bus, switch_bus + 15), inside);
}
/// Half of a node: two cores and one domain, with what hangs on it.
std::string half(int i, const std::string& devices) {
  const auto sets = [](int cores, int domains) {
    return fmt::format(R"(cpuset="{0:#x}" complete_cpuset="{0:#x}" nodeset="{1:#x}" complete_nodeset="{1:#x}")", cores, domains);
  };
  std::string inside = "<info name=\"CPUModel\" value=\"Xeon X\"/>" +
                       object("NUMANode", fmt::format("os_index=\"{}\" local_memory=\"4096\" {}", i, sets(3 << 2 * i, 1 << i)));
  for (int core = 2 * i; core < 2 * i + 2; ++core)
    inside += object("Core", fmt::format("os_index=\"{}\" {}", core, sets(1 << core, 1 << i)),
        object("PU", fmt::format("os_index=\"{}\" {}", core, sets(1 << core, 1 << i))));
  return object("Package", fmt::format("os_index=\"{}\" {}", i, sets(3 << 2 * i, 1 << i)), inside + devices);
}
std::string node(const std::string& first, const std::string& second) {
  return "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n" +
         object("Machine", R"(os_index="0" cpuset="0xf" complete_cpuset="0xf" allowed_cpuset="0xf" nodeset="0x3" )"
                           R"(complete_nodeset="0x3" allowed_nodeset="0x3")",
             half(0, first) + half(1, second)) +
         "</topology>\n";
}

/// Two GPUs with an adapter each behind switches of their own, a third one of storage, one that is down.
TEST_F(Adapters, TheNearestIsTheOneBehindTheSameSwitch) {
  const std::string xml = node(under(0x10, fabric_at("11", "mlx5_2") + fabric_at("12", "mlx5_3")) + under(0x20, pci("21", "0302") + fabric_at("22", "mlx5_1")),
      under(0x40, pci("41", "0302") + fabric_at("42", "mlx5_0")));
  for (const char* name : {"mlx5_0", "mlx5_1"}) fabric(name, 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
  fabric("mlx5_1", 2, "1: DOWN", "200 Gb/sec (4X HDR)");
  fabric("mlx5_2", 1, "4: ACTIVE", "100 Gb/sec (4X EDR)");
  fabric("mlx5_3", 1, "5: ACTIVE_DEFER", "400 Gb/sec (4X NDR)");
  const auto at = [&](const char* cores, const char* bus) { return look(cores, bus, {.xml = xml, .classes = classes}); };
  const Site near = at("0-1", "0000:21:00.0"), far = at("1", "0000:41:00.0"), wide = at("1-2", "0000:41:00.0"), host = at("2-3", "");
  EXPECT_EQ(near.cpu, "Xeon X, 2 sockets, 4 cores, 4 threads");
  EXPECT_EQ(near.adapters, 2) << "neither the slow one nor those that are down";
  EXPECT_THAT((std::vector{near.core_domains, near.device_domains, near.adapter, near.adapter_domains}), ElementsAre("0", "0", "mlx5_1:1", "0"));
  EXPECT_THAT((std::vector{far.core_domains, far.device_domains, far.adapter, far.adapter_domains}), ElementsAre("0", "1", "mlx5_0:1", "1"));
  EXPECT_TRUE(!near.apart && far.apart && !wide.apart && !host.apart);
  EXPECT_THAT((std::vector{host.device_domains, host.adapter}), ElementsAre("", "mlx5_0:1")) << "nearest to the cores";
  EXPECT_FALSE(at("0", "0000:77:00.0").apart) << "a device that is not there";
  setenv("UCX_NET_DEVICES", "mlx5_2:1", 1);
  EXPECT_EQ(at("3", "0000:41:00.0").adapter, "mlx5_2:1");
  setenv("MINITAW_SHAPED_LINKS", "rate=1mbit", 1);
  EXPECT_EQ(at("3", "").adapter + std::to_string(at("3", "").adapters), "1") << "the machine's own are not those of its nodes";
}

/// Slingshot's are network interfaces; one that is an adapter of InfiniBand, too (Slingshot 10), is one.
TEST_F(Adapters, OfSlingshotCount) {
  const auto net = [](const char* name) { return object("OSDev", fmt::format(R"(name="{}" osdev_type="2")", name)); };
  const std::string xml = node(pci("11", "0200", net("hsn0")) + pci("12", "0200", net("eth0")),
      pci("41", "0200", net("hsn1")) + pci("42", "0200", net("hsn2") + object("OSDev", R"(name="mlx5_0" osdev_type="3")")) + pci("43", "0200", net("hsn3")));
  for (const char* name : {"eth0", "hsn0", "hsn1", "hsn2", "hsn3"}) {
    file(fmt::format("net/{}/operstate", name), name == std::string("hsn3") ? "down" : "up");
    file(fmt::format("net/{}/speed", name), "200000");
  }
  fabric("mlx5_0", 1, "4: ACTIVE", "200 Gb/sec (4X HDR)");
  const auto at = [&](const char* cores) { return look(cores, "", {.xml = xml, .classes = classes}); };
  EXPECT_EQ(at("0").adapters, 3) << "hsn0, hsn1, mlx5_0";
  EXPECT_EQ(at("0").adapter + " " + at("3").adapter, "hsn0:1 hsn1:1");
  setenv("FI_CXI_DEVICE_NAME", "cxi1", 1);
  EXPECT_EQ(at("0").adapter + " " + std::to_string(at("0").adapters), "hsn1:1 1");
}
}  // namespace
}  // namespace minitaw::topology
