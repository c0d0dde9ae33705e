// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/network.hpp"
#include <csignal>
#include <fmt/format.h>
#include <list>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <utility>

namespace minitaw::predict {
namespace {
namespace sg = simgrid::s4u;
using Direction = sg::LinkInRoute::Direction;

constexpr double processor_speed = 1e9;  // of SimGrid's FLOP/s: work is given in seconds
constexpr double host_speed = 1;         // of hosts that only end links
constexpr double usual_share = 1, first_share = 1000;  // of a processor, relative to each other

/// The one engine of the process. Its defaults are those of TCP in a wide area.
sg::Engine& engine() {
  static sg::Engine* const made = [] {
    static char program[] = "minitaw", quiet[] = "--log=root.thresh:error";
    static char* arguments[] = {program, quiet, nullptr};
    int count = 2;
    // Its handlers call an interrupt a segmentation fault.
    struct sigaction interrupt{}, fault{};
    sigaction(SIGINT, nullptr, &interrupt);
    sigaction(SIGSEGV, nullptr, &fault);
    auto* const engine = new sg::Engine(&count, arguments);  // lives until the process ends
    sigaction(SIGINT, &interrupt, nullptr);
    sigaction(SIGSEGV, &fault, nullptr);
    for (const char* setting :
        {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0"})
      sg::Engine::set_config(setting);
    return engine;
  }();
  return *made;
}

/// A link between a host and the centre of its star, where flows pass the `core`, if there is one.
/// Half of the latency lies at each end. A flow from the host to itself passes its link twice.
void add_leaf(
    sg::NetZone& star, sg::Host* host, double rate, double latency, sg::Link* core = nullptr) {
  auto* const link = star.add_split_duplex_link(host->get_name() + ".link", rate);
  link->set_latency(latency / 2);
  std::vector<sg::LinkInRoute> route = {{link, Direction::UP}};
  if (core != nullptr)
    route.emplace_back(core);
  star.add_route(host, nullptr, route, true);
  route.emplace_back(link, Direction::DOWN);
  star.add_route(host, host, route, false);
}

/// SimGrid's activities that have not ended.
struct UnderWay {
  std::list<sg::ActivityPtr> all;
  sg::ActivityPtr last;  ///< whose completion callback runs: SimGrid still uses it

  static UnderWay& of_process() {
    static UnderWay one;
    return one;
  }
};

/// Starts an activity, which must not hold itself, as a callback of it that knows it would.
template <class Activity>
void start(const Activity& activity, Network::Done done) {
  UnderWay& under_way = UnderWay::of_process();
  const auto place = under_way.all.insert(under_way.all.end(), activity);
  activity->on_this_completion_cb([&under_way, place, done = std::move(done)](const auto&) {
    under_way.last = std::move(*place);
    under_way.all.erase(place);
    done();
  });
  activity->start();
}

void send(sg::Host* from, sg::Host* to, double bytes, Network::Done done) {
  const sg::CommPtr flow = sg::Comm::sendto_init(from, to);
  flow->set_payload_size(bytes);
  start(flow, std::move(done));
}
}  // namespace

Network::Network(const Machine& machine) : machine_(machine), root_(*engine().get_netzone_root()) {
  for (int node = 0; node < machine_.nodes && machine_.ranks_per_node > 1; ++node)
    add_node(node);
  if (machine_.rate > 0)
    add_network();
  if (machine_.processors > 0)
    add_processors();
}

void Network::add_node(int node) {
  const std::string name = fmt::format("node{}", node);
  const bool pairs = machine_.inside == Inside::pairs;
  Zone& zone = *(pairs ? root_.add_netzone_full(name) : root_.add_netzone_star(name));
  sg::Link* memory = nullptr;
  if (machine_.inside == Inside::memory) {
    memory = zone.add_link(name + ".memory", machine_.inside_rate);
    memory->set_latency(machine_.inside_latency);
  }
  const std::size_t first = ranks_.size();
  for (int local = 0; local < machine_.ranks_per_node; ++local) {
    sg::Host* const host = zone.add_host(fmt::format("{}.{}", name, local), host_speed);
    if (machine_.inside == Inside::network)
      add_leaf(zone, host, machine_.inside_rate, machine_.inside_latency);
    if (memory != nullptr)
      zone.add_route(host, nullptr, {sg::LinkInRoute(memory)}, true);
    for (std::size_t other = first; pairs && other < ranks_.size(); ++other) {
      auto* const link = zone.add_split_duplex_link(
          host->get_name() + "-" + ranks_[other]->get_name(), machine_.inside_rate);
      link->set_latency(machine_.inside_latency);
      zone.add_route(host, ranks_[other], {{link, Direction::UP}}, true);
    }
    ranks_.push_back(host);
  }
  zone.seal();
}

void Network::add_network() {
  Zone& zone = *root_.add_netzone_star("network");
  sg::Link* const core = machine_.taper < 1 ? zone.add_link("core", machine_.core_rate()) : nullptr;
  for (int i = 0; i < machine_.all_adapters(); ++i) {
    adapters_.push_back(zone.add_host(fmt::format("network.{}", i), host_speed));
    add_leaf(zone, adapters_.back(), machine_.rate, machine_.latency, core);
  }
  zone.seal();
}

void Network::add_processors() {
  Zone& zone = *root_.add_netzone_empty("processors");
  for (int i = 0; i < machine_.nodes; ++i) {
    processors_.push_back(zone.add_host(fmt::format("processors{}", i), processor_speed));
    processors_.back()->set_core_count(machine_.processors);
  }
  zone.seal();
}

void Network::flow(int from, int to, double bytes, Done done) {
  send(ranks_[from], ranks_[to], bytes, std::move(done));
}

void Network::between(int from, int to, double bytes, Done done) {
  send(adapters_[from], adapters_[to], bytes, std::move(done));
}

void Network::work(int rank, double seconds, Done done, bool first) {
  const sg::ExecPtr exec = sg::Exec::init();
  exec->set_flops_amount(seconds * processor_speed)
      ->set_priority(first ? first_share : usual_share)
      ->set_host(processors_[machine_.node_of(rank)]);
  start(exec, std::move(done));
}

void Network::later(double seconds, Done done) {
  simgrid::kernel::timer::Timer::set(now() + seconds, std::move(done));
}

void Network::run() {
  engine().run();
}

double Network::now() {
  return sg::Engine::get_clock();
}
}  // namespace minitaw::predict
