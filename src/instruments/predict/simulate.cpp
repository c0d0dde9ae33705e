// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <exception>
#include <fmt/format.h>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <ranges>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <span>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include "base/error.hpp"
#include "instruments/predict/predict.hpp"
#include "schedule/execute.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind, schedule::Place, schedule::Span;
namespace sg = simgrid::s4u;

/// The one engine of the process. Its defaults are those of TCP in a wide area.
sg::Engine& engine() {
  static sg::Engine* const made = [] {
    static char program[] = "minitaw", quiet[] = "--log=root.thresh:error";
    static char* arguments[] = {program, quiet, nullptr};
    int count = 2;
    auto* const engine = new sg::Engine(&count, arguments);  // lives until the process ends
    for (const char* setting :
        {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0"})
      sg::Engine::set_config(setting);
    return engine;
  }();
  return *made;
}

constexpr double processor_speed = 1e9;
constexpr double host_speed = 1;  // of hosts that only end links

/// The links and processors of a machine as resources of SimGrid: flows share links fairly
/// (max-min, without TCP's window, cross traffic or overhead), a latency is paid before a flow
/// begins and loads nothing.
///
/// A process has one SimGrid with one clock, whose platform is fixed once it has run: one network
/// each.
class Network {
public:
  using Done = std::function<void()>;

  /// Throws InputError if the adapters do not fit the topology.
  explicit Network(const Machine& machine) : machine_(machine) {
    sg::NetZone* const root = engine().get_netzone_root();
    for (int node = 0; node < machine_.nodes && machine_.ranks_per_node > 1; ++node)
      add_node(*root, node);
    if (machine_.rate > 0)
      add_adapters(*root);
    if (machine_.processors > 0) {
      sg::NetZone* const zone = root->add_netzone_empty("processors");
      for (int i = 0; i < machine_.pools; ++i) {
        processors_.push_back(zone->add_host(fmt::format("processors{}", i), processor_speed));
        processors_.back()->set_core_count(machine_.processors);
      }
      zone->seal();
    }
  }

  Network& operator=(Network&&) = delete;

  /// Moves bytes between ranks of a node; `done` is called when they have arrived, not before this
  /// returns.
  void flow(int from, int to, double bytes, Done done) {
    send(ranks_, from, to, bytes, std::move(done));
  }

  /// Sends bytes from adapter to adapter.
  void between(int from, int to, double bytes, Done done) {
    send(adapters_, from, to, bytes, std::move(done));
  }

  /// So many seconds of one of the processors that the rank shares with others; work that is
  /// `first` takes a processor from all other work, as interrupts and threads that wake up do.
  void work(int rank, double seconds, Done done, bool first = false) {
    const sg::ExecPtr exec = sg::Exec::init();
    exec->set_flops_amount(seconds * processor_speed)
        ->set_priority(first ? 1000 : 1)
        ->set_host(processors_[machine_.node_of(rank) % processors_.size()]);
    start(exec, std::move(done));
  }

  static void later(double seconds, Done done) {
    simgrid::kernel::timer::Timer::set(now() + seconds, std::move(done));
  }

  /// Runs until nothing is under way. Callbacks may start more.
  static void run() { engine().run(); }

  [[nodiscard]] static double now() { return sg::Engine::get_clock(); }

private:
  /// Half of the latency lies at each end. `to_itself`: a flow from the host to itself passes its
  /// link twice.
  static void add_leaf(
      sg::NetZone& star, sg::Host* host, double rate, double latency, bool to_itself = false) {
    auto* const link = star.add_split_duplex_link(host->get_name() + ".link", rate);
    link->set_latency(latency / 2);
    using Direction = sg::LinkInRoute::Direction;
    star.add_route(host, nullptr, {{link, Direction::UP}}, true);
    if (to_itself)
      star.add_route(host, host, {{link, Direction::UP}, {link, Direction::DOWN}}, false);
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
      if (machine_.inside == Inside::network)
        add_leaf(zone, host, machine_.inside_rate, machine_.inside_latency);
      if (memory != nullptr)
        zone.add_route(host, nullptr, {sg::LinkInRoute(memory)}, true);
      for (std::size_t other = first; pairs && other < ranks_.size(); ++other) {
        auto* const link = zone.add_split_duplex_link(
            host->get_name() + "-" + ranks_[other]->get_name(), machine_.inside_rate);
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
    sg::NetZone& zone = *(machine_.topology == Topology::fat_tree ? fat_tree(root, name, count)
                                                                  : dragonfly(root, name, count));
    zone.set_host_cb(
        [this, name](sg::NetZone* inner, const std::vector<unsigned long>&, unsigned long id) {
          adapters_.push_back(inner->add_host(fmt::format("{}.{}", name, id), host_speed));
          return adapters_.back();
        });
    zone.seal();
  }

  [[nodiscard]] sg::NetZone* fat_tree(
      sg::NetZone& root, const std::string& name, unsigned count) const {
    const auto leaf = static_cast<unsigned>(machine_.leaf);
    const unsigned switches = (count + leaf - 1) / leaf;
    return root.add_netzone_fatTree(name,
        2,
        {leaf, switches},
        {1, static_cast<unsigned>(machine_.spines)},
        {1, 1},
        machine_.rate,
        machine_.latency,
        sg::Link::SharingPolicy::SPLITDUPLEX);
  }

  [[nodiscard]] sg::NetZone* dragonfly(
      sg::NetZone& root, const std::string& name, unsigned count) const {
    const int routers = machine_.dragonfly_groups * machine_.chassis * machine_.routers;
    const unsigned each = (count + routers - 1) / routers;
    return root.add_netzone_dragonfly(name,
        std::pair(machine_.dragonfly_groups, machine_.group_links),
        std::pair(machine_.chassis, machine_.chassis_links),
        std::pair(machine_.routers, machine_.router_links),
        each,
        machine_.rate,
        machine_.latency,
        sg::Link::SharingPolicy::SPLITDUPLEX);
  }

  /// An activity must not hold itself, as a callback of it that knows it would.
  template <class ActivityPtr>
  void start(const ActivityPtr& activity, Done done) {
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
  std::vector<sg::Host*> processors_;  ///< of each pool
  std::list<sg::ActivityPtr> under_way_;
  sg::ActivityPtr last_;  ///< the activity whose completion callback runs: SimGrid still uses it
};

/// Simulates a program as the engine does: each lane starts its actions in order, once those in
/// front of it are over (messages of one direction: once there are few enough under way) and what
/// it waits for on other lanes is finished. Messages and collectives begin when all sides have
/// started.
class Simulation {
public:
  Simulation(const schedule::Program& program,
      const model::Layout& layout,
      const Machine& machine,
      const schedule::Costs& costs,
      int replicas)
      : program_(program),
        matching_(schedule::detail::match(program)),
        layout_(layout),
        machine_(machine),
        costs_(costs),
        replicas_(replicas),
        network_(machine),
        adapters_(machine.all_adapters()),
        started_(matching_.other.size()),
        over_(started_),
        calls_(matching_.collectives()),
        left_(started_.size()) {
    is_stirred_.resize(program.ranks.size());
    for (const schedule::RankProgram& rank : program.ranks) {
      auto& lanes = lanes_.emplace_back();
      for (int i = 0; i < static_cast<int>(rank.actions.size()); ++i)
        lanes[index_of(rank.actions[i].lane)].actions.push_back(i);
      spans_.emplace_back(rank.actions.size());
    }
  }

  void simulate() {
    for (int r = 0; r < static_cast<int>(lanes_.size()); ++r)
      stir(r);
    start_ready();
    Network::run();
    if (left_ > 0)
      throw LogicError(fmt::format("a prediction stopped with {} actions left", left_));
  }

  [[nodiscard]] const trace::StepSpans& spans() const { return spans_; }

  [[nodiscard]] const std::vector<AdapterUse>& adapters() const { return adapters_; }

private:
  struct LaneState {
    std::vector<int> actions;
    int next = 0, first = 0;  ///< to start; the first that is not finished
    double opened =
        0;  ///< when `next` could have started but for its waits; below 0: it could not yet
  };

  /// A transfer under way; those of its flows and of its work that are not over hold it.
  struct Transfer {
    std::vector<Place> sides;
    int parts = 0;
    double rest = 0;  ///< seconds after the last part
  };

  using Shared = std::shared_ptr<Transfer>;

  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }

  Span& span(Place p) { return spans_[p.rank][p.action]; }

  /// Something happened that a lane of the rank may have waited for. Ranks are looked at in the
  /// order of these events.
  void stir(int r) {
    if (is_stirred_[r])
      return;
    is_stirred_[r] = true;
    stirred_.push_back(r);
  }

  void start_ready() {
    while (!stirred_.empty()) {
      const int r = stirred_.front();
      stirred_.pop_front();
      is_stirred_[r] = false;
      for (LaneState& lane : lanes_[r])
        while (start_next(r, lane)) {}
    }
  }

  bool start_next(int r, LaneState& own) {
    if (own.next == static_cast<int>(own.actions.size()) || !may_join(r, own))
      return false;
    if (own.opened < 0)
      own.opened = Network::now();
    const Place p{r, own.actions[own.next]};
    if (!waits_met(p))
      return false;
    span(p) = {own.opened, Network::now(), 0};
    ++own.next;
    own.opened = -1;
    start(p);
    return true;
  }

  /// Returns whether the next action may begin, as LaneExecutor::may_join() of the engine.
  bool may_join(int r, const LaneState& own) const {
    const auto action = [&](int i) -> const Action& { return at({r, own.actions[i]}); };
    return own.first == own.next ||
           (own.next - own.first < machine_.messages &&
               std::ranges::all_of(
                   std::views::iota(own.first, own.next),
                   [&](int i) { return may_overlap(action(i), action(own.next)); }));
  }

  bool waits_met(Place p) {
    const Action& a = at(p);
    for (int l = 0; l < schedule::lanes; ++l)
      if (l != static_cast<int>(a.lane) && lanes_[p.rank][l].first < a.waits[l])
        return false;
    return true;
  }

  void finish(Place p) {
    span(p).end = Network::now();
    over_[matching_.number(p)] = true;
    LaneState& own = lanes_[p.rank][index_of(at(p).lane)];
    for (; own.first < own.next; ++own.first) {  // they count as finished in order
      const Place first{p.rank, own.actions[own.first]};
      if (!over_[matching_.number(first)])
        break;
      span(first).end = Network::now();
    }
    stir(p.rank);
    --left_;
  }

  void start(Place p) {
    const Action& a = at(p);
    if (schedule::is_communication(a.kind))
      return join(p);
    const double seconds = costs_(p.rank, a);
    if (!(seconds > 0))
      return finish(p);
    const auto done = [this, p] {
      finish(p);
      start_ready();
    };
    if (machine_.processors > 0)
      network_.work(p.rank, seconds, done);
    else
      Network::later(seconds, done);
  }

  /// A collective begins with the last of its sides, a message too, unless it is eager: then with
  /// its send.
  void join(Place p) {
    const Action& a = at(p);
    const std::int64_t number = matching_.number(p);
    if (schedule::is_collective(a.kind)) {
      const std::vector<int>& members = program_.communicators[a.communicator].ranks;
      std::vector<Place>& calls = calls_[matching_.other[number]];
      calls.push_back(p);
      if (calls.size() == members.size())
        begin(std::move(calls), [&](const Shared& t) { collective(t, a, members); });
      return;
    }
    const Place other{a.peer, matching_.other[number]};
    const bool sends = a.kind == Kind::send;
    const int from = sends ? p.rank : a.peer, to = sends ? a.peer : p.rank;
    const auto transfer = [&](const Shared& t) {
      move(t, from, to, schedule::moved_bytes(a, layout_));
    };
    started_[number] = true;
    if (machine_.eager &&
        machine_.node_of(from) !=
            machine_.node_of(
                to)) {  // the receive ends when both it has begun and the data are there
      if (sends)
        begin({p}, transfer);
      else if (over_[matching_.number(other)])
        finish(p);
    } else if (started_[matching_.number(other)]) {
      begin({other, p}, transfer);
    }
  }

  /// `add_parts` adds all parts; none ends before.
  void begin(std::vector<Place> sides, const auto& add_parts) {
    const Shared t = std::make_shared<Transfer>(std::move(sides), 1);
    add_parts(t);
    if (--t->parts == 0)
      complete(*t);
  }

  /// The flows of a collective: rooted ones are a chain, the others a ring of slices. Pieces pass
  /// on as they come, so all links are busy at once; what it takes until the last link has its
  /// first piece comes on top.
  void collective(const Shared& t, const Action& a, const std::vector<int>& members) {
    const bool replicated = members.size() == 1 && replicas_ > 1;  // the others are not simulated
    const auto n = replicated ? replicas_ : static_cast<int>(members.size());
    const double bytes = schedule::moved_bytes(a, layout_);
    if (n < 2)
      return;
    const bool chain = a.kind == Kind::broadcast || a.kind == Kind::reduce;
    const double rounds = chain ? 1 : (a.kind == Kind::all_reduce ? 2.0 : 1.0) * (n - 1) / n;
    const int root =
        chain ? static_cast<int>(std::ranges::find(members, a.peer) - members.begin()) : 0;
    const auto member = [&](int i) { return members[(root + i) % members.size()]; };
    double slowest = machine_.inside_rate, longest = machine_.inside_latency;
    for (int i = 0; i < (replicated ? 1 : chain ? n - 1 : n); ++i) {
      int from = member(i), to = member(i + 1);
      if (a.kind == Kind::reduce)
        std::swap(from, to);
      if (replicated || machine_.node_of(from) != machine_.node_of(to)) {
        longest = std::max(longest, machine_.latency);
        const double rate = across(t, from, to, bytes * rounds);
        slowest = slowest > 0 ? std::min(slowest, rate) : rate;
      } else {
        move(t, from, to, bytes * rounds);
      }
    }
    const double piece = std::min(bytes, static_cast<double>(schedule::chunk_bytes));
    const int hops = chain ? n - 2 : a.kind == Kind::all_reduce ? 2 * n - 3 : n - 2;
    t->rest += hops * (longest + (chain ? piece / slowest : 0));
  }

  /// A step of a ring from node to node, through all adapters, as libraries for devices do. Returns
  /// the slowest rate.
  double across(const Shared& t, int from, int to, double bytes) {
    const int count = machine_.adapters, out = machine_.node_of(from) * count,
              in = machine_.node_of(to) * count;
    double slowest = machine_.rates[out];
    for (int i = 0; i < count; ++i) {
      slowest = std::min({slowest, machine_.rates[out + i], machine_.rates[in + i]});
      if (count > 1 || from == to)
        between(out + i, in + i, bytes / count, part_of(t));
    }
    if (count == 1 && from != to)
      move(t, from, to, bytes);
    else
      charge(t, from, to, bytes);
    return slowest;
  }

  void between(int adapter, int other, double bytes, Network::Done done) {
    adapters_[adapter].out += bytes;
    adapters_[other].in += bytes;
    network_.between(adapter, other, bytes, std::move(done));
  }

  /// Each side of a transfer moves its bytes once.
  void charge(const Shared& t, int from, int to, double bytes) {
    if (machine_.processors > 0 && machine_.moving > 0)
      for (const int side : {from, to})
        network_.work(side, bytes / machine_.moving, part_of(t), true);
  }

  void move(const Shared& t, int from, int to, double bytes) {
    charge(t, from, to, bytes);
    if (machine_.node_of(from) == machine_.node_of(to))
      return network_.flow(from, to, bytes, part_of(t));
    const int out = machine_.adapter_of(from), in = machine_.adapter_of(to);
    if (!machine_.eager)
      return between(out, in, bytes, part_of(t));
    // What one rank sends to another passes one connection (TCP): a message leaves when those
    // before it have passed.
    std::deque<std::function<void()>>& waiting = connections_[{from, to}];
    waiting.emplace_back([=, this, &waiting, done = part_of(t)] {
      between(out, in, bytes, [=, &waiting] {
        waiting.pop_front();
        if (!waiting.empty())
          waiting.front()();
        done();
      });
    });
    if (waiting.size() == 1)
      waiting.front()();
  }

  /// Returns what is to be called when the part is over.
  Network::Done part_of(const Shared& t) {
    ++t->parts;
    return [this, t] { part_over(t); };
  }

  void part_over(const Shared& t) {
    if (--t->parts > 0)
      return;
    if (const double rest = std::exchange(t->rest, 0); rest > 0)
      return Network::later(rest, part_of(t));
    complete(*t);
    start_ready();
  }

  void complete(const Transfer& t) {
    for (const Place side : t.sides)
      finish(side);
    const Action& a = at(t.sides.front());
    if (a.kind != Kind::send || t.sides.size() > 1)
      return;
    const Place other{a.peer, matching_.other[matching_.number(t.sides.front())]};
    if (started_[matching_.number(other)])
      finish(other);
  }

  const schedule::Program& program_;
  const schedule::Matching matching_;
  const model::Layout& layout_;
  const Machine& machine_;
  const schedule::Costs& costs_;
  int replicas_;
  Network network_;
  std::vector<std::array<LaneState, schedule::lanes>> lanes_;  ///< by rank
  std::deque<int> stirred_;
  std::vector<bool> is_stirred_;
  trace::StepSpans spans_;
  std::vector<AdapterUse> adapters_;
  std::map<std::pair<int, int>, std::deque<std::function<void()>>>
      connections_;                        ///< by rank: messages, in order
  std::vector<bool> started_, over_;       ///< by number; sends and receives only, all actions
  std::vector<std::vector<Place>> calls_;  ///< of each collective, in order of arrival
  std::size_t left_;
};

/// Runs `work` in a process of its own, since SimGrid has one platform in a process; prints its
/// errors.
void apart(const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0)
    throw std::runtime_error("no process for a prediction");
  if (child == 0) {
    int code = 1;
    try {
      work();
      code = 0;
    } catch (const std::exception& error) {
      fmt::print(stderr, "minitaw: {}\n", error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (status != 0)
    throw std::runtime_error("a prediction ended before its time");
}

/// Elements that a process shares with its children.
template <class T>
std::shared_ptr<T[]> shared(std::size_t count) {
  const std::size_t bytes = std::max<std::size_t>(count, 1) * sizeof(T);
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw std::bad_alloc();
  return {static_cast<T*>(memory), [bytes](T* all) { munmap(all, bytes); }};
}
}  // namespace

Prediction simulate(const schedule::Program& program,
    const model::Layout& layout,
    const Machine& machine,
    const schedule::Costs& costs,
    int replicas) {
  Prediction result;
  std::size_t actions = 0;
  for (const schedule::RankProgram& rank : program.ranks)
    actions += rank.actions.size();
  const auto spans = shared<Span>(actions);
  const auto adapters = shared<AdapterUse>(machine.all_adapters());
  apart([&] {
    Simulation simulation(program, layout, machine, costs, replicas);
    simulation.simulate();
    std::ranges::copy(simulation.adapters(), adapters.get());
    std::ranges::copy(simulation.spans() | std::views::join, spans.get());
  });
  result.adapters.assign(adapters.get(), adapters.get() + machine.all_adapters());
  for (const Span* next = spans.get(); const schedule::RankProgram& rank : program.ranks) {
    result.spans.emplace_back(next, next + rank.actions.size());
    next += rank.actions.size();
  }
  for (const Span& span : std::span(spans.get(), actions))
    result.seconds = std::max(result.seconds, span.end);
  result.account = trace::account(program, result.spans);
  return result;
}
}  // namespace minitaw::predict
