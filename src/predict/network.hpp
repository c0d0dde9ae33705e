// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include <functional>
#include <list>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <vector>
#include "predict/machine.hpp"

namespace minitaw::predict {
namespace sg = simgrid::s4u;

/// The one engine of the process. Its defaults are those of TCP in a wide area.
inline sg::Engine& engine() {
  static sg::Engine* const made = [] {
    static char program[] = "minitaw", quiet[] = "--log=root.thresh:error";
    static char* arguments[] = {program, quiet, nullptr};
    int count = 2;
    auto* const engine = new sg::Engine(&count, arguments);  // lives until the process ends
    for (const char* setting : {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0"})
      sg::Engine::set_config(setting);
    return engine;
  }();
  return *made;
}

constexpr double processor_speed = 1e9;
constexpr double host_speed = 1;  // of hosts that only end links

/// The links and processors of a machine as resources of SimGrid: flows share links fairly (max-min, without
/// TCP's window, cross traffic or overhead), a latency is paid before a flow begins and loads nothing.
///
/// A process has one SimGrid with one clock, whose platform is fixed once it has run: one network each.
class Network {
public:
  using Done = std::function<void()>;

  /// Throws InputError if the adapters do not fit the topology.
  explicit Network(const Machine& machine) : machine_(machine) {
    sg::NetZone* const root = engine().get_netzone_root();
    for (int node = 0; node < machine_.nodes && machine_.ranks_per_node > 1; ++node) add_node(*root, node);
    if (machine_.rate > 0) add_adapters(*root);
    if (machine_.processors > 0) {
      sg::NetZone* const zone = root->add_netzone_empty("processors");
      for (int i = 0; i < (machine_.one_machine ? 1 : machine_.nodes); ++i) {
        processors_.push_back(zone->add_host(fmt::format("processors{}", i), processor_speed));
        processors_.back()->set_core_count(machine_.processors);
      }
      zone->seal();
    }
  }

  Network& operator=(Network&&) = delete;

  /// Moves bytes between ranks of a node; `done` is called when they have arrived, not before this returns.
  void flow(int from, int to, double bytes, Done done) { send(ranks_, from, to, bytes, std::move(done)); }
  /// Sends bytes from adapter to adapter.
  void between(int from, int to, double bytes, Done done) { send(adapters_, from, to, bytes, std::move(done)); }
  /// So many seconds of one of the processors that the rank shares with others; work that is `first` takes a
  /// processor from all other work, as interrupts and threads that wake up do.
  void work(int rank, double seconds, Done done, bool first = false) {
    const int node = machine_.one_machine ? 0 : machine_.node_of(rank);
    const sg::ExecPtr exec = sg::Exec::init();
    exec->set_flops_amount(seconds * processor_speed)->set_priority(first ? 1000 : 1)->set_host(processors_[node]);
    start(exec, std::move(done));
  }
  static void later(double seconds, Done done) { simgrid::kernel::timer::Timer::set(now() + seconds, std::move(done)); }

  /// Runs until nothing is under way. Callbacks may start more.
  static void run() { engine().run(); }
  [[nodiscard]] static double now() { return sg::Engine::get_clock(); }

private:
  /// Half of the latency lies at each end. `to_itself`: a flow from the host to itself passes its link twice.
  static void add_leaf(sg::NetZone& star, sg::Host* host, double rate, double latency, bool to_itself = false) {
    auto* const link = star.add_split_duplex_link(host->get_name() + ".link", rate);
    link->set_latency(latency / 2);
    using Direction = sg::LinkInRoute::Direction;
    star.add_route(host, nullptr, {{link, Direction::UP}}, true);
    if (to_itself) star.add_route(host, host, {{link, Direction::UP}, {link, Direction::DOWN}}, false);
  }

  void add_node(sg::NetZone& root, int node) {
    const std::string name = fmt::format("node{}", node);
    const bool pairs = machine_.inside == Inside::pairs;
    sg::NetZone& zone = *(pairs ? root.add_netzone_full(name) : root.add_netzone_star(name));
    const std::size_t first = ranks_.size();
    sg::Link* memory = nullptr;
    if (machine_.inside == Inside::memory) {
      memory = zone.add_link(name + ".memory", machine_.inside_rate);
      memory->set_latency(machine_.inside_latency);
    }
    for (int local = 0; local < machine_.ranks_per_node; ++local) {
      sg::Host* const host = zone.add_host(fmt::format("{}.{}", name, local), host_speed);
      if (machine_.inside == Inside::network) add_leaf(zone, host, machine_.inside_rate, machine_.inside_latency);
      if (memory != nullptr) zone.add_route(host, nullptr, {sg::LinkInRoute(memory)}, true);
      for (std::size_t other = first; pairs && other < ranks_.size(); ++other) {
        auto* const link =
            zone.add_split_duplex_link(host->get_name() + "-" + ranks_[other]->get_name(), machine_.inside_rate);
        link->set_latency(machine_.inside_latency);
        zone.add_route(host, ranks_[other], {{link, sg::LinkInRoute::Direction::UP}}, true);
      }
      ranks_.push_back(host);
    }
    zone.seal();
  }

  void add_adapters(sg::NetZone& root) {
    const std::string name = "network";
    const auto count = static_cast<unsigned>(machine_.all_adapters());
    if (machine_.topology == Topology::one_switch) {
      sg::NetZone& zone = *root.add_netzone_star(name);
      for (unsigned i = 0; i < count; ++i) {
        adapters_.push_back(zone.add_host(fmt::format("{}.{}", name, i), host_speed));
        add_leaf(zone, adapters_.back(), machine_.rates[i], machine_.latency, true);
      }
      zone.seal();
      return;
    }
    sg::NetZone& zone =
        *(machine_.topology == Topology::fat_tree ? fat_tree(root, name, count) : dragonfly(root, name, count));
    zone.set_host_cb([this, name](sg::NetZone* inner, const std::vector<unsigned long>&, unsigned long id) {
      adapters_.push_back(inner->add_host(fmt::format("{}.{}", name, id), host_speed));
      return adapters_.back();
    });
    zone.seal();
  }

  [[nodiscard]] sg::NetZone* fat_tree(sg::NetZone& root, const std::string& name, unsigned count) const {
    const auto leaf = static_cast<unsigned>(machine_.leaf);
    const unsigned switches = (count + leaf - 1) / leaf;
    return root.add_netzone_fatTree(name, 2, {leaf, switches}, {1, static_cast<unsigned>(machine_.spines)}, {1, 1},
        machine_.rate, machine_.latency, sg::Link::SharingPolicy::SPLITDUPLEX);
  }

  [[nodiscard]] sg::NetZone* dragonfly(sg::NetZone& root, const std::string& name, unsigned count) const {
    const int routers = machine_.dragonfly_groups * machine_.chassis * machine_.routers;
    const unsigned each = (count + routers - 1) / routers;
    return root.add_netzone_dragonfly(name, std::pair(machine_.dragonfly_groups, machine_.group_links),
        std::pair(machine_.chassis, machine_.chassis_links), std::pair(machine_.routers, machine_.router_links), each,
        machine_.rate, machine_.latency, sg::Link::SharingPolicy::SPLITDUPLEX);
  }

  /// An activity must not hold itself, as a callback of it that knows it would.
  template <class ActivityPtr> void start(const ActivityPtr& activity, Done done) {
    const auto place = under_way_.insert(under_way_.end(), activity);
    activity->on_this_completion_cb([this, place, done = std::move(done)](const auto&) {
      last_ = std::move(*place);
      under_way_.erase(place);
      done();
    });
    activity->start();
  }

  void send(const std::vector<sg::Host*>& hosts, int from, int to, double bytes, Done done) {
    const sg::CommPtr flow = sg::Comm::sendto_init(hosts[from], hosts[to]);
    flow->set_payload_size(static_cast<std::uint64_t>(bytes));
    start(flow, std::move(done));
  }

  const Machine& machine_;
  std::vector<sg::Host*> ranks_, adapters_;
  std::vector<sg::Host*> processors_;  ///< of each node, or of all
  std::list<sg::ActivityPtr> under_way_;
  sg::ActivityPtr last_;  ///< the activity whose completion callback runs: SimGrid still uses it
};
}  // namespace minitaw::predict
