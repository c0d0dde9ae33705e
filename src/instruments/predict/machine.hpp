// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>
#include "model/cost.hpp"

namespace minitaw::predict {
/// Speed of a device in one precision.
struct DeviceSpeed : model::Speed {
  double peak = 0;  ///< for MFU; 0: not known
};

/// Links between the ranks of a node.
enum class Inside : std::uint8_t {
  network,  ///< a switch: `rate` is what a rank sends, and receives
  pairs,    ///< a link for each two ranks: `rate` is one direction of it
  memory,   ///< all share `rate`
};

/// A machine as docs/predict.md describes it. Rates in bytes/s or FLOP/s, times in seconds.
struct Machine {
  std::string path;  ///< named in messages
  std::string name;
  int nodes = 0;
  int ranks_per_node = 0;

  std::map<model::Dtype, DeviceSpeed> speeds{};
  double memory_rate = 0;  ///< for what computes little
  double overhead = 0;     ///< of each action
  double memory = 0;       ///< bytes of a device; 0: not known
  /// Processors of a node that its ranks share in time; 0: each rank has a device.
  int processors = 0;
  /// With `processors`: bytes that one of them moves in a second, for each side of a transfer; 0:
  /// for free.
  double moving = 0;

  Inside inside = Inside::network;
  double inside_rate = 0, inside_latency = 0;

  int adapters = 1;    ///< of a node; rank i of a node uses number i * adapters / ranks_per_node
  double rate = 0;     ///< of an adapter, each direction
  double taper = 1;    ///< share of the rates of all adapters that they have together
  double latency = 0;  ///< from adapter to adapter, one way
  int messages = 1;    ///< that a lane may have under way at once in one direction
  bool eager = false;  ///< a message between nodes leaves with its send, not when the receive has
                       ///< begun too

  int ranks() const { return nodes * ranks_per_node; }

  int node_of(int rank) const { return rank / ranks_per_node; }

  int all_adapters() const { return nodes * adapters; }

  /// Counted over the machine.
  int adapter_of(int rank) const {
    return node_of(rank) * adapters + rank % ranks_per_node * adapters / ranks_per_node;
  }

  /// Bytes/s between all nodes together.
  double core_rate() const { return taper * all_adapters() * rate; }

  /// Returns whether a device has that many bytes, as far as is known.
  bool has_room(std::size_t bytes) const { return memory == 0 || bytes <= memory; }
};

/// `changes` are "between.rate=25 Gbit/s". Throws InputError: one sentence with file, line and key.
Machine read_machine(const std::string& path, const std::vector<std::string>& changes = {});
/// Reads a machine from text in memory; messages name `path`.
Machine parse_machine(
    const std::string& text, const std::string& path, const std::vector<std::string>& changes = {});
}  // namespace minitaw::predict
