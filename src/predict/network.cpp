#include "predict/network.hpp"

#include <fmt/format.h>

#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <vector>

#include "base/error.hpp"

namespace minitaw::predict {
namespace {

namespace sg = simgrid::s4u;

/// The one engine of the process. Its defaults are those of TCP in a wide area.
sg::Engine& engine() {
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

}  // namespace

struct Network::Impl {
  const Machine& machine;
  std::vector<sg::Host*> ranks, adapters;
  std::vector<sg::Host*> processors;  ///< of each node, or of all
  std::vector<sg::ActivityPtr> under_way;
  std::vector<std::size_t> vacant;  ///< places in `under_way`
  sg::ActivityPtr last;             ///< SimGrid still uses what has told that it is over

  explicit Impl(const Machine& m) : machine(m) {
    sg::NetZone* const root = engine().get_netzone_root();
    for (int node = 0; node < machine.nodes && machine.ranks_per_node > 1; ++node) add_node(*root, node);
    if (machine.rate > 0) add_adapters(*root);
    if (machine.processors > 0) {
      sg::NetZone* const zone = root->add_netzone_empty("processors");
      for (int i = 0; i < (machine.one_machine ? 1 : machine.nodes); ++i) {
        processors.push_back(zone->add_host(fmt::format("processors{}", i), processor_speed));
        processors.back()->set_core_count(machine.processors);
      }
      zone->seal();
    }
  }

  /// Half of the latency lies at each end. `to_itself`: a flow from the host to itself passes its link twice.
  static void add_leaf(sg::NetZone& star, sg::Host* host, double rate, double latency,
                       bool to_itself = false) {
    auto* const link = star.add_split_duplex_link(host->get_name() + ".link", rate);
    link->set_latency(latency / 2);
    using Direction = sg::LinkInRoute::Direction;
    star.add_route(host, nullptr, {{link, Direction::UP}}, true);
    if (to_itself) star.add_route(host, host, {{link, Direction::UP}, {link, Direction::DOWN}}, false);
  }

  void add_node(sg::NetZone& root, int node) {
    const std::string name = fmt::format("node{}", node);
    const bool pairs = machine.inside == Inside::pairs;
    sg::NetZone& zone = *(pairs ? root.add_netzone_full(name) : root.add_netzone_star(name));
    const std::size_t first = ranks.size();
    sg::Link* memory = nullptr;
    if (machine.inside == Inside::memory) {
      memory = zone.add_link(name + ".memory", machine.inside_rate);
      memory->set_latency(machine.inside_latency);
    }
    for (int local = 0; local < machine.ranks_per_node; ++local) {
      sg::Host* const host = zone.add_host(fmt::format("{}.{}", name, local), host_speed);
      if (machine.inside == Inside::network)
        add_leaf(zone, host, machine.inside_rate, machine.inside_latency);
      if (memory != nullptr) zone.add_route(host, nullptr, {sg::LinkInRoute(memory)}, true);
      for (std::size_t other = first; pairs && other < ranks.size(); ++other) {
        auto* const link = zone.add_split_duplex_link(host->get_name() + "-" + ranks[other]->get_name(),
                                                      machine.inside_rate);
        link->set_latency(machine.inside_latency);
        zone.add_route(host, ranks[other], {{link, sg::LinkInRoute::Direction::UP}}, true);
      }
      ranks.push_back(host);
    }
    zone.seal();
  }

  void add_adapters(sg::NetZone& root) {
    const std::string name = "network";
    const auto count = static_cast<unsigned>(machine.all_adapters());
    if (machine.topology == Topology::one_switch) {
      sg::NetZone& zone = *root.add_netzone_star(name);
      for (unsigned i = 0; i < count; ++i) {
        adapters.push_back(zone.add_host(fmt::format("{}.{}", name, i), host_speed));
        add_leaf(zone, adapters.back(), machine.rate, machine.latency, true);
      }
      zone.seal();
      return;
    }
    sg::NetZone& zone = *(machine.topology == Topology::fat_tree ? fat_tree(root, name, count)
                                                                 : dragonfly(root, name, count));
    zone.set_host_cb([this, name](sg::NetZone* inner, const std::vector<unsigned long>&, unsigned long id) {
      adapters.push_back(inner->add_host(fmt::format("{}.{}", name, id), host_speed));
      return adapters.back();
    });
    zone.seal();
  }

  [[nodiscard]] sg::NetZone* fat_tree(sg::NetZone& root, const std::string& name, unsigned count) const {
    const auto leaf = static_cast<unsigned>(machine.leaf);
    const unsigned switches = (count + leaf - 1) / leaf;
    return root.add_netzone_fatTree(name, 2, {leaf, switches}, {1, static_cast<unsigned>(machine.spines)},
                                    {1, 1}, machine.rate, machine.latency,
                                    sg::Link::SharingPolicy::SPLITDUPLEX);
  }

  [[nodiscard]] sg::NetZone* dragonfly(sg::NetZone& root, const std::string& name, unsigned count) const {
    const auto pair = [](int a, int b) {
      return std::pair(static_cast<unsigned>(a), static_cast<unsigned>(b));
    };
    const int routers = machine.dragonfly_groups * machine.chassis * machine.routers;
    const unsigned each = (count + static_cast<unsigned>(routers) - 1) / static_cast<unsigned>(routers);
    return root.add_netzone_dragonfly(name, pair(machine.dragonfly_groups, machine.group_links),
                                      pair(machine.chassis, machine.chassis_links),
                                      pair(machine.routers, machine.router_links), each, machine.rate,
                                      machine.latency, sg::Link::SharingPolicy::SPLITDUPLEX);
  }

  /// An activity must not hold itself, as a callback of it that knows it would.
  template <class Activity>
  void start(const boost::intrusive_ptr<Activity>& activity, Done done) {
    if (vacant.empty()) vacant.push_back((under_way.emplace_back(), under_way.size() - 1));
    const std::size_t place = vacant.back();
    vacant.pop_back();
    under_way[place] = activity;
    activity->on_this_completion_cb([this, place, done = std::move(done)](const Activity&) {
      last = std::move(under_way[place]);
      vacant.push_back(place);
      done();
    });
    activity->start();
  }

  void flow(sg::Host* from, sg::Host* to, double bytes, Done done) {
    const sg::CommPtr flow = sg::Comm::sendto_init(from, to);
    flow->set_payload_size(static_cast<std::uint64_t>(bytes));
    start(flow, std::move(done));
  }
};

Network::Network(const Machine& machine) : impl_(std::make_unique<Impl>(machine)) {}
Network::~Network() = default;

void Network::flow(int from, int to, double bytes, Done done) {
  const auto at = [&](int rank) { return impl_->ranks[static_cast<std::size_t>(rank)]; };
  impl_->flow(at(from), at(to), bytes, std::move(done));
}

void Network::between(int adapter, int other, double bytes, Done done) {
  const auto at = [&](int i) { return impl_->adapters[static_cast<std::size_t>(i)]; };
  impl_->flow(at(adapter), at(other), bytes, std::move(done));
}

void Network::work(int rank, double seconds, Done done, bool first) {
  const auto node = static_cast<std::size_t>(impl_->machine.one_machine ? 0 : impl_->machine.node_of(rank));
  const sg::ExecPtr exec = sg::Exec::init();
  exec->set_flops_amount(seconds * processor_speed)
      ->set_priority(first ? 1000 : 1)
      ->set_host(impl_->processors[node]);
  impl_->start(exec, std::move(done));
}

void Network::later(double seconds, Done done) {
  simgrid::kernel::timer::Timer::set(now() + seconds, std::move(done));
}

void Network::run() { engine().run(); }
double Network::now() { return sg::Engine::get_clock(); }

}  // namespace minitaw::predict
