// SPDX-License-Identifier: BSD-3-Clause
#include "topology/hardware.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <hwloc.h>
#include <memory>
#include <ranges>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace minitaw::topology {
namespace {
namespace fs = std::filesystem;
using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;
using Set = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

/// Null if hwloc cannot read the node. Leaves out caches, and the instruction of x86 that hwloc runs on every
/// core.
Topology load(const std::string& xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw std::bad_alloc();
  Topology node(raw, hwloc_topology_destroy);
  if (!xml.empty()) hwloc_topology_set_xmlbuffer(raw, xml.c_str(), static_cast<int>(xml.size()) + 1);
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0) node.reset();
  return node;
}

std::string cpu_text(hwloc_topology_t node) {
  hwloc_obj_t package = hwloc_get_obj_by_type(node, HWLOC_OBJ_PACKAGE, 0);
  if (package == nullptr) package = hwloc_get_root_obj(node);
  const auto info = [&](const char* name) {
    const char* const value = hwloc_obj_get_info_by_name(package, name);
    return std::string(value == nullptr ? "" : value);
  };
  const auto count = [&](hwloc_obj_type_t type, const char* word) {
    return counted(hwloc_get_nbobjs_by_type(node, type), word);
  };
  std::string model = info("CPUModel");
  if (const std::string part = info("CPUPart"); model.empty())
    model = part.empty() ? "unknown" : fmt::format("ARM implementer {} part {}", info("CPUImplementer"), part);
  return fmt::format("{}, {}, {}, {}", model, count(HWLOC_OBJ_PACKAGE, "socket"), count(HWLOC_OBJ_CORE, "core"),
      count(HWLOC_OBJ_PU, "thread"));
}

/// A port of a network adapter that is up.
struct Port {
  hwloc_obj_t adapter;
  int number;
  double gbit;  ///< Gbit/s

  [[nodiscard]] std::string text() const { return fmt::format("{}:{}", adapter->name, number); }
};

std::string line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

/// InfiniBand and RoCE: a state is "4: ACTIVE", a rate "200 Gb/sec (4X HDR)".
void add_fabric(std::vector<Port>& ports, hwloc_obj_t adapter, const fs::path& classes) {
  std::error_code missing;
  for (const auto& port : fs::directory_iterator(classes / "infiniband" / adapter->name / "ports", missing))
    if (line_of(port.path() / "state").ends_with(": ACTIVE"))
      ports.push_back(
          {adapter, std::atoi(port.path().filename().c_str()), std::atof(line_of(port.path() / "rate").c_str())});
}

/// Slingshot: an interface is "up", its speed in Mbit/s. It may belong to an adapter that is there as a
/// fabric.
void add_slingshot(std::vector<Port>& ports, hwloc_obj_t adapter, const fs::path& classes) {
  const fs::path folder = classes / "net" / adapter->name;
  const auto same = [&](const Port& other) { return other.adapter->parent == adapter->parent; };
  if (line_of(folder / "operstate") == "up" && std::ranges::none_of(ports, same))
    ports.push_back({adapter, 1, 1e-3 * std::atof(line_of(folder / "speed").c_str())});
}

std::vector<Port> ports_up(hwloc_topology_t node, const fs::path& classes) {
  std::vector<Port> ports;
  const auto each = [&](hwloc_obj_osdev_type_t type, std::string_view prefix, const auto& add) {
    for (hwloc_obj_t at = nullptr; (at = hwloc_get_next_osdev(node, at)) != nullptr;)
      if (at->attr->osdev.type == type && std::string_view(at->name).starts_with(prefix)) add(ports, at, classes);
  };
  each(HWLOC_OBJ_OSDEV_OPENFABRICS, "", add_fabric);
  each(HWLOC_OBJ_OSDEV_NETWORK, "hsn", add_slingshot);
  std::ranges::sort(ports, {}, &Port::text);
  return ports;
}

/// Returns whether a word of a list names this port: "mlx5_0", "mlx5_0:1"; libfabric calls hsn0 cxi0.
bool is_named(std::string word, const Port& port, bool by_prefix) {
  if (word.starts_with("cxi")) word.replace(0, 3, "hsn");
  const std::size_t colon = word.find(':');
  if (colon != std::string::npos && word.substr(colon + 1) != std::to_string(port.number)) return false;
  const std::string name = word.substr(0, colon), adapter = port.adapter->name;
  return by_prefix ? adapter.starts_with(name) : adapter == name;
}

/// Leaves those that carry messages, see Site::adapters. Words of NCCL's list are beginnings of names unless
/// it begins with "=".
void keep_carriers(std::vector<Port>& ports) {
  std::string list;
  bool by_prefix = false;
  for (const char* name : {"NCCL_IB_HCA", "FI_CXI_DEVICE_NAME", "UCX_NET_DEVICES"})  // the last one counts
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0' && std::string_view(text) != "all")
      list = text, by_prefix = *name == 'N';
  const bool excludes = list.starts_with('^'), exact = list.substr(excludes ? 1 : 0).starts_with('=');
  list.erase(0, excludes + exact);
  const auto listed = [&](const Port& port) {
    return std::ranges::any_of(std::views::split(list, ','),
        [&](const auto& word) { return is_named(std::string(word.begin(), word.end()), port, by_prefix && !exact); });
  };
  if (!list.empty()) std::erase_if(ports, [&](const Port& port) { return listed(port) == excludes; });
  if (ports.empty() || !(list.empty() || excludes)) return;
  const double fastest = std::ranges::max(ports, {}, &Port::gbit).gbit;
  std::erase_if(ports, [&](const Port& port) { return port.gbit < fastest; });
}

std::string text_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (hwloc_bitmap_iszero(set) || hwloc_bitmap_list_asprintf(&text, set) < 0) return "";
  return std::unique_ptr<char, decltype(&std::free)>(text, std::free).get();
}

/// Steps up from an object to what it is part of together with another one.
int steps(hwloc_obj_t from, hwloc_obj_t to) {
  int up = 0;
  for (; from != nullptr; from = from->parent, ++up)
    for (hwloc_obj_t at = to; at != nullptr; at = at->parent)
      if (at == from) return up;
  return up;
}
}  // namespace

std::string describe() {
  const Topology node = load("");
  char* text = nullptr;
  int size = 0;
  if (node == nullptr || hwloc_topology_export_xmlbuffer(node.get(), &text, &size, 0) != 0) return "";
  const std::string xml(text);
  hwloc_free_xmlbuffer(node.get(), text);
  return xml;
}

Site look(const std::string& cores, const std::string& bus, const NodeSource& source) {
  Site site;
  const Topology owner = load(source.xml);
  hwloc_topology_t node = owner.get();
  if (node == nullptr) return site;
  site.cpu = cpu_text(node);
  const Set own(hwloc_bitmap_alloc(), hwloc_bitmap_free), domains(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  hwloc_bitmap_list_sscanf(own.get(), cores.c_str());
  hwloc_bitmap_and(own.get(), own.get(), hwloc_topology_get_topology_cpuset(node));
  hwloc_cpuset_to_nodeset(node, own.get(), domains.get());
  site.core_domains = text_of(domains.get());
  const auto domains_of = [&](hwloc_obj_t device) { return hwloc_get_non_io_ancestor_obj(node, device)->nodeset; };
  hwloc_obj_t from = hwloc_get_obj_covering_cpuset(node, own.get());
  if (hwloc_obj_t device = bus.empty() ? nullptr : hwloc_get_pcidev_by_busidstring(node, bus.c_str())) {
    from = device;
    site.device_domains = text_of(domains_of(device));
    if (!site.core_domains.empty() && !site.device_domains.empty())
      site.domain_shared = hwloc_bitmap_intersects(domains.get(), domains_of(device)) != 0 ? "yes" : "no";
  }
  if (std::getenv("MINITAW_SHAPED_LINKS") != nullptr) return site;  // the machine's adapters are not its nodes'
  std::vector<Port> ports = ports_up(node, source.classes);
  keep_carriers(ports);
  if (ports.empty()) return site;
  std::ranges::stable_sort(ports, {}, [&](const Port& port) { return steps(from, port.adapter); });
  site.adapters = fmt::format("{}", fmt::join(ports | std::views::transform(&Port::text), ","));
  site.adapter_domains = text_of(domains_of(ports.front().adapter));
  return site;
}
}  // namespace minitaw::topology
