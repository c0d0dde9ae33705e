// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "model/layout.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::predict {
using model::Curve;

/// Speed of a device in one precision.
struct Speed : model::Speed {
  double peak = 0;  ///< for MFU; 0: not known
  /// Measured FLOP/s of whole actions (F, BW, B, W, loss); they take the place of all others.
  std::map<schedule::Kind, double> actions;
};

struct Device {
  std::map<model::Dtype, Speed> speeds;
  double memory_rate = 0;  ///< for what computes little
  double overhead = 0;     ///< of each action
};

/// What the device of a rank has of its own.
struct Own {
  double speed = 1;                       ///< factor on all rates but `peak`
  std::optional<std::uint64_t> memory{};  ///< bytes
};

/// Links between the ranks of a node.
enum class Inside : std::uint8_t {
  network,  ///< a switch: `rate` is what a rank sends, and receives
  pairs,    ///< a link for each two ranks: `rate` is one direction of it
  memory,   ///< all share `rate`
};

enum class Topology : std::uint8_t { one_switch, fat_tree, dragonfly };

/// A machine as docs/predict.md describes it. Rates in bytes/s or FLOP/s, times in seconds.
struct Machine {
  std::string path;  ///< named in messages
  std::string name;
  int nodes = 1;
  int ranks_per_node = 1;

  Device device;
  std::vector<Own> own;  ///< by rank
  bool alike = true;     ///< the file has no exceptions
  /// Processors of a pool that ranks share in time; 0: each rank has a device.
  int processors = 0;
  /// Node n uses number n mod `pools`; less than `nodes` on a cluster on one machine.
  int pools = 1;
  /// With `processors`: bytes that one of them moves in a second, for each side of a transfer; 0:
  /// for free.
  double moving = 0;

  Inside inside = Inside::network;
  double inside_rate = 0, inside_latency = 0;

  int adapters = 1;  ///< of a node; rank i of a node uses number i * adapters / ranks_per_node
  double rate = 0;   ///< of an adapter, each direction
  /// Of all adapters of the machine; alike unless they are below one switch.
  std::vector<double> rates;
  /// From adapter to adapter, one way; in a fat tree or dragonfly: of each of its links.
  double latency = 0;
  Topology topology = Topology::one_switch;
  int messages = 1;  ///< that a lane may have under way at once in one direction
  /// A message between nodes leaves with its send, not when the receive has begun too.
  bool eager = false;
  int leaf = 0;    ///< fat tree: adapters of a switch
  int spines = 0;  ///< fat tree: links of a leaf switch upwards, each to another spine
  int dragonfly_groups = 0, chassis = 0, routers = 0;  ///< of the machine, a group, a chassis
  int group_links = 1, chassis_links = 1, router_links = 1;

  [[nodiscard]] int ranks() const { return nodes * ranks_per_node; }

  [[nodiscard]] int node_of(int rank) const { return rank / ranks_per_node; }

  [[nodiscard]] int all_adapters() const { return nodes * adapters; }

  /// Counted over the machine.
  [[nodiscard]] int adapter_of(int rank) const {
    return node_of(rank) * adapters + rank % ranks_per_node * adapters / ranks_per_node;
  }
};

/// `changes` are "between.rate=25 Gbit/s". Throws InputError: one sentence with file, line and key.
[[nodiscard]] Machine read_machine(
    const std::string& path, const std::vector<std::string>& changes = {});
/// Reads a machine from text in memory; messages name `path`.
[[nodiscard]] Machine parse_machine(
    const std::string& text, const std::string& path, const std::vector<std::string>& changes = {});
}  // namespace minitaw::predict
