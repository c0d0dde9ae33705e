// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

/// The node as hwloc sees it: processors, NUMA domains, devices, network adapters, and how near they are.
namespace minitaw::topology {
/// A port of a network adapter that is up.
struct Port {
  std::string adapter;  ///< "mlx5_0", "hsn0"
  int number = 1;
  double gbit = 0;  ///< Gbit/s

  [[nodiscard]] std::string text() const { return adapter + ":" + std::to_string(number); }
};

/// Returns the ports that carry the messages of a job: those that UCX_NET_DEVICES, FI_CXI_DEVICE_NAME or
/// NCCL_IB_HCA name, whichever is set first in this order. Without a list, and of those that a list does not
/// exclude (^), the fastest: slower ones serve storage and management.
[[nodiscard]] std::vector<Port> carriers(std::vector<Port> up);

/// The node around a rank. Domains are NUMA domains by the system's numbers, "0-1"; empty: not known.
struct Site {
  std::string cpu = "unknown";  ///< "AMD EPYC 9654 96-Core Processor, 2 sockets, 192 cores, 384 threads" of the node
  int adapters = 1;  ///< ports that carry messages to other nodes; 1 where none is known, and on the nodes of
                     ///< scripts/cluster
  std::string core_domains, device_domains, adapter_domains;
  std::string adapter;  ///< of those ports the one nearest to the device, or to the cores: "mlx5_0:1"
  bool apart = false;   ///< cores and device share no domain
};

/// What is looked at; tests have others.
struct NodeSource {
  std::string xml{};        ///< a node as hwloc writes it; empty: this machine
  std::string synthetic{};  ///< or as hwloc describes one: "numa:2 core:4 pu:1"
  std::string classes = "/sys/class";  ///< rates and states of ports, which hwloc does not tell
};

/// Returns this machine as hwloc writes it (NodeSource::xml), so that one rank of a node reads it for all: the
/// kernel lets only one read the devices at a time, which takes tens of milliseconds.
[[nodiscard]] std::string describe();

/// Looks around from these cores ("0-3,8") and the device on this PCI bus ("0000:65:00.0"; empty: none).
[[nodiscard]] Site look(const std::string& cores, const std::string& bus, const NodeSource& source = {});
}  // namespace minitaw::topology
