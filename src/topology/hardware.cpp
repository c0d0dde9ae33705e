// SPDX-License-Identifier: BSD-3-Clause
#include "topology/hardware.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <hwloc.h>
#include <memory>
#include <ranges>
#include <string_view>

#include "base/error.hpp"

namespace minitaw::topology {
namespace {
namespace fs = std::filesystem;
using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;
using Set = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Set empty_set() { return {hwloc_bitmap_alloc(), hwloc_bitmap_free}; }

/// Only what look() asks for: caches and the instruction of the processor (x86), for which hwloc visits every
/// core, take most of the time.
Topology load(const NodeSource& source) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw std::bad_alloc();
  Topology node(raw, hwloc_topology_destroy);
  if (!source.xml.empty())
    hwloc_topology_set_xmlbuffer(raw, source.xml.c_str(), static_cast<int>(source.xml.size()) + 1);
  if (!source.synthetic.empty()) hwloc_topology_set_synthetic(raw, source.synthetic.c_str());
  hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0) node.reset();
  return node;
}

std::string info(hwloc_obj_t object, const char* name) {
  const char* const value = hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? "" : value;
}

std::string model(hwloc_obj_t package) {
  if (const std::string name = info(package, "CPUModel"); !name.empty()) return name;
  if (const std::string part = info(package, "CPUPart"); !part.empty())
    return fmt::format("ARM implementer {} part {}", info(package, "CPUImplementer"), part);
  return "unknown";
}

std::string cpu_text(hwloc_topology_t node) {
  const auto count = [&](hwloc_obj_type_t type, const char* word) {
    return counted(hwloc_get_nbobjs_by_type(node, type), word);
  };
  hwloc_obj_t package = hwloc_get_obj_by_type(node, HWLOC_OBJ_PACKAGE, 0);
  if (package == nullptr) package = hwloc_get_root_obj(node);
  return fmt::format("{}, {}, {}, {}", model(package), count(HWLOC_OBJ_PACKAGE, "socket"),
      count(HWLOC_OBJ_CORE, "core"), count(HWLOC_OBJ_PU, "thread"));
}

/// A file's first line, or nothing.
std::string line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

struct Adapter {
  Port port;
  hwloc_obj_t object;
};

/// Appends the ports of InfiniBand or RoCE that are up: their states are "4: ACTIVE", their rates
/// "200 Gb/sec (4X HDR)".
void add_fabric(std::vector<Adapter>& adapters, hwloc_obj_t object, const fs::path& classes) {
  std::error_code missing;
  for (const auto& port : fs::directory_iterator(classes / "infiniband" / object->name / "ports", missing))
    if (line_of(port.path() / "state").ends_with(": ACTIVE"))
      adapters.push_back({{object->name, std::atoi(port.path().filename().c_str()),
                              std::atof(line_of(port.path() / "rate").c_str())},
          object});
}

/// Appends an adapter of Slingshot, unless it is the network interface of one that is known as a fabric. A
/// speed is in Mbit/s.
void add_slingshot(std::vector<Adapter>& adapters, hwloc_obj_t object, const fs::path& classes) {
  const fs::path folder = classes / "net" / object->name;
  const auto same = [&](const Adapter& other) { return other.object->parent == object->parent; };
  if (line_of(folder / "operstate") == "up" && std::ranges::none_of(adapters, same))
    adapters.push_back({{object->name, 1, 1e-3 * std::atof(line_of(folder / "speed").c_str())}, object});
}

std::vector<Adapter> adapters_up(hwloc_topology_t node, const fs::path& classes) {
  std::vector<Adapter> adapters;
  const auto each = [&](hwloc_obj_osdev_type_t type, std::string_view prefix, const auto& add) {
    for (hwloc_obj_t at = hwloc_get_next_osdev(node, nullptr); at != nullptr; at = hwloc_get_next_osdev(node, at))
      if (at->attr->osdev.type == type && std::string_view(at->name).starts_with(prefix)) add(adapters, at, classes);
  };
  each(HWLOC_OBJ_OSDEV_OPENFABRICS, "", add_fabric);
  each(HWLOC_OBJ_OSDEV_NETWORK, "hsn", add_slingshot);
  std::ranges::sort(adapters, {}, [](const Adapter& a) { return std::pair(a.port.adapter, a.port.number); });
  return adapters;
}

/// Returns whether a word of a list names this port: "mlx5_0", "mlx5_0:1"; libfabric calls hsn0 cxi0.
bool is_named(std::string word, const Port& port, bool by_prefix) {
  if (word.starts_with("cxi")) word.replace(0, 3, "hsn");
  const std::size_t colon = word.find(':');
  if (colon != std::string::npos && word.substr(colon + 1) != std::to_string(port.number)) return false;
  const std::string name = word.substr(0, colon);
  return by_prefix ? port.adapter.starts_with(name) : port.adapter == name;
}

/// The list of a variable that is set first, and whether it holds beginnings of names, as NCCL's do without =.
std::pair<std::string, bool> list_of_adapters() {
  for (const char* name : {"UCX_NET_DEVICES", "FI_CXI_DEVICE_NAME", "NCCL_IB_HCA"})
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0' && std::string_view(text) != "all")
      return {text, *name == 'N'};
  return {};
}

std::string text_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (set == nullptr || hwloc_bitmap_iszero(set) || hwloc_bitmap_list_asprintf(&text, set) < 0) return "";
  return std::unique_ptr<char, decltype(&std::free)>(text, std::free).get();
}

/// NUMA domains of a device: of the cores that it hangs on.
hwloc_const_bitmap_t domains_of(hwloc_topology_t node, hwloc_obj_t device) {
  return hwloc_get_non_io_ancestor_obj(node, device)->nodeset;
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

std::vector<Port> carriers(std::vector<Port> up) {
  auto [list, by_prefix] = list_of_adapters();
  const bool excludes = list.starts_with('^');
  list.erase(0, excludes ? 1 : 0);
  if (by_prefix && list.starts_with('=')) list.erase(0, 1), by_prefix = false;
  const auto listed = [&](const Port& port) {
    return std::ranges::any_of(std::views::split(list, ','), [&](const auto& word) {
      return is_named(std::string(word.begin(), word.end()), port, by_prefix);
    });
  };
  if (!list.empty()) std::erase_if(up, [&](const Port& port) { return listed(port) == excludes; });
  if (!list.empty() && !excludes) return up;
  double fastest = 0;
  for (const Port& port : up) fastest = std::max(fastest, port.gbit);
  std::erase_if(up, [&](const Port& port) { return port.gbit < fastest; });
  return up;
}

std::string describe() {
  const Topology node = load({});
  char* text = nullptr;
  int size = 0;
  if (node == nullptr || hwloc_topology_export_xmlbuffer(node.get(), &text, &size, 0) != 0) return "";
  const std::string xml(text);
  hwloc_free_xmlbuffer(node.get(), text);
  return xml;
}

Site look(const std::string& cores, const std::string& bus, const NodeSource& source) {
  const Topology owner = load(source);
  hwloc_topology_t node = owner.get();
  Site site;
  if (node == nullptr) return site;  // hwloc cannot read it
  site.cpu = cpu_text(node);
  const Set own = empty_set(), domains = empty_set();
  hwloc_bitmap_list_sscanf(own.get(), cores.c_str());
  hwloc_bitmap_and(own.get(), own.get(), hwloc_topology_get_topology_cpuset(node));
  hwloc_cpuset_to_nodeset(node, own.get(), domains.get());
  site.core_domains = text_of(domains.get());
  hwloc_obj_t from = hwloc_get_obj_covering_cpuset(node, own.get());
  if (hwloc_obj_t device = bus.empty() ? nullptr : hwloc_get_pcidev_by_busidstring(node, bus.c_str())) {
    from = device;
    site.device_domains = text_of(domains_of(node, device));
    site.apart = !site.core_domains.empty() && !site.device_domains.empty() &&
                 hwloc_bitmap_intersects(domains.get(), domains_of(node, device)) == 0;
  }
  if (std::getenv("MINITAW_SHAPED_LINKS") != nullptr) return site;  // the machine's adapters are not its nodes'
  std::vector<Adapter> up = adapters_up(node, source.classes);
  std::vector<Port> used;
  for (const Adapter& adapter : up) used.push_back(adapter.port);
  used = carriers(std::move(used));
  std::erase_if(up, [&](const Adapter& a) {
    return std::ranges::find(used, a.port.text(), &Port::text) == used.end();
  });
  site.adapters = std::max(1, static_cast<int>(up.size()));
  const auto nearest = std::ranges::min_element(up, {}, [&](const Adapter& a) { return steps(from, a.object); });
  if (nearest == up.end()) return site;
  site.adapter = nearest->port.text();
  site.adapter_domains = text_of(domains_of(node, nearest->object));
  return site;
}
}  // namespace minitaw::topology
