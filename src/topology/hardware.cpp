// SPDX-License-Identifier: BSD-3-Clause
#include "topology/hardware.hpp"
#include <algorithm>
#include <cstdlib>
#include <fmt/ranges.h>
#include <hwloc.h>
#include <map>
#include <memory>
#include <ranges>
#include <set>
#include "base/error.hpp"
#include "topology/system.hpp"

namespace minitaw::topology {
namespace {
namespace fs = std::filesystem;
using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

/// Null if hwloc cannot read the node. Leaves out caches, and the instruction of x86 that runs on
/// every core.
Topology load(const std::string& xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    throw std::bad_alloc();
  Topology node(raw, hwloc_topology_destroy);
  if (!xml.empty())
    hwloc_topology_set_xmlbuffer(raw, xml.c_str(), xml.size() + 1);
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0)
    node.reset();
  return node;
}

/// Linux has numbers alone for a processor of Arm: its maker and its part.
std::string arm_name(const std::string& numbers) {
  static const std::map<std::string, std::string> names = {{"0x41 part 0xd0c", "Neoverse-N1"},
      {"0x41 part 0xd40", "Neoverse-V1"},
      {"0x41 part 0xd4f", "Neoverse-V2"},
      {"0x46 part 0x001", "A64FX"}};
  const auto known = names.find(numbers);
  return known == names.end() ? "ARM implementer " + numbers : known->second;
}

std::string cpu_text(hwloc_topology_t node) {
  hwloc_obj_t package = hwloc_get_obj_by_type(node, HWLOC_OBJ_PACKAGE, 0);
  if (package == nullptr)
    package = hwloc_get_root_obj(node);
  const auto info = [&](const char* name) {
    const char* const value = hwloc_obj_get_info_by_name(package, name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto count = [&](hwloc_obj_type_t type, const char* word) {
    return counted(hwloc_get_nbobjs_by_type(node, type), word);
  };
  std::string model = info("CPUModel");
  if (model.empty() && !info("CPUPart").empty())
    model = arm_name(info("CPUImplementer") + " part " + info("CPUPart"));
  return fmt::format("{}, {}, {}, {}",
      model.empty() ? "unknown" : model,
      count(HWLOC_OBJ_PACKAGE, "socket"),
      count(HWLOC_OBJ_CORE, "core"),
      count(HWLOC_OBJ_PU, "thread"));
}

/// Hardware threads of one core are one core.
void set_cores(Site& site, hwloc_topology_t node) {
  const hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(node);
  std::set<int> cores;
  for (hwloc_obj_t at = nullptr;
      (at = hwloc_get_next_obj_by_type(node, HWLOC_OBJ_PU, at)) != nullptr;) {
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(node, HWLOC_OBJ_CORE, at);
    const int first = hwloc_bitmap_first((core == nullptr ? at : core)->cpuset);
    if (at->os_index >= site.core_of.size())
      site.core_of.resize(at->os_index + 1, -1);
    site.core_of[at->os_index] = first;
    if (hwloc_bitmap_isset(allowed, at->os_index) != 0)
      cores.insert(first);
  }
  site.cores.assign(cores.begin(), cores.end());
}

struct Port {
  hwloc_obj_t adapter;
  int number;
  double gbit;  ///< Gbit/s

  std::string text() const { return fmt::format("{}:{}", adapter->name, number); }
};

/// InfiniBand and RoCE: a state is "4: ACTIVE", a rate "200 Gb/sec (4X HDR)".
void add_fabric(std::vector<Port>& ports, hwloc_obj_t adapter, const fs::path& classes) {
  std::error_code missing;
  for (const auto& port :
      fs::directory_iterator(classes / "infiniband" / adapter->name / "ports", missing))
    if (line_of(port.path() / "state").ends_with(": ACTIVE"))
      ports.push_back({adapter,
          std::atoi(port.path().filename().c_str()),
          std::atof(line_of(port.path() / "rate").c_str())});
}

/// Slingshot: interface hsn0 is "up", its speed in Mbit/s.
void add_slingshot(std::vector<Port>& ports, hwloc_obj_t adapter, const fs::path& classes) {
  const fs::path folder = classes / "net" / adapter->name;
  if (std::string_view(adapter->name).starts_with("hsn") && line_of(folder / "operstate") == "up")
    ports.push_back({adapter, 1, 1e-3 * std::atof(line_of(folder / "speed").c_str())});
}

std::vector<Port> ports_up(hwloc_topology_t node, const fs::path& classes) {
  std::vector<Port> ports;
  for (hwloc_obj_t at = nullptr; (at = hwloc_get_next_osdev(node, at)) != nullptr;)
    if (at->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
      add_fabric(ports, at, classes);
    else if (at->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
      add_slingshot(ports, at, classes);
  std::ranges::sort(ports, {}, &Port::text);
  return ports;
}
}  // namespace

Site look(const std::string& xml, const fs::path& classes) {
  Site site;
  const Topology node = load(xml);
  if (node == nullptr)
    return site;
  site.cpu = cpu_text(node.get());
  set_cores(site, node.get());
  if (std::getenv("MINITAW_SHAPED_LINKS") != nullptr)
    return site;  // the machine's adapters are not its nodes'
  std::vector<Port> ports = ports_up(node.get(), classes);
  if (ports.empty())
    return site;
  const double fastest = std::ranges::max(ports, {}, &Port::gbit).gbit;
  std::erase_if(ports, [&](const Port& port) { return port.gbit < fastest; });
  site.adapters = fmt::format("{}", fmt::join(ports | std::views::transform(&Port::text), ","));
  return site;
}

int fewest_adapters(const std::vector<Site>& sites) {
  const auto count = [](const Site& site) { return 1 + std::ranges::count(site.adapters, ','); };
  return count(std::ranges::min(sites, {}, count));
}
}  // namespace minitaw::topology
