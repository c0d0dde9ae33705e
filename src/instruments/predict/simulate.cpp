// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <deque>
#include <exception>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <ranges>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include "instruments/predict/network.hpp"
#include "instruments/predict/predict.hpp"
#include "schedule/execute.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind, schedule::Place, schedule::Sides, schedule::Span;

/// Spans of all ranks that are simulated, of no length.
trace::StepSpans empty_spans(const SimulatedStep& step) {
  trace::StepSpans all;
  for (int replica = 0; replica < step.replicas(); ++replica)
    for (const schedule::RankProgram& rank : step.plan->program->ranks)
      all.emplace_back(rank.actions.size());
  return all;
}

/// What the engine allows on a machine.
schedule::LaneRules rules_of(const Machine& machine) {
  schedule::LaneRules rules{.messages = machine.messages};
  if (machine.eager)
    rules.eager = [&machine](
                      int from, int to) { return machine.node_of(from) != machine.node_of(to); };
  return rules;
}

/// Plays a program on the network of a machine: lanes advance as in the engine, and the network
/// says when actions end.
class Simulation {
public:
  Simulation(const SimulatedStep& step, const schedule::Costs& costs)
      : step_(step),
        costs_(costs),
        network_(machine_),
        lanes_(program_, rules_of(machine_), step.replicas()),
        arrived_(lanes_.matching().transfers()),
        spans_(empty_spans(step)),
        sent_(machine_.all_adapters()),
        received_(machine_.all_adapters()) {}

  void run() {
    start_ready();
    Network::run();
    lanes_.require_end();
    end_in_order();
  }

  const trace::StepSpans& spans() const { return spans_; }

  AdapterBytes traffic() const {
    return {.busiest = std::max(std::ranges::max(sent_), std::ranges::max(received_)),
        .between = std::accumulate(sent_.begin(), sent_.end(), 0.0)};
  }

private:
  /// A local action or a transfer that has begun.
  struct Activity {
    std::vector<Place> sides;
    int parts = 1;    ///< flows and work that are not over, and one while they are added
    double rest = 0;  ///< seconds after the last part
  };

  using Shared = std::shared_ptr<Activity>;

  Span& span(Place p) { return spans_[p.rank][p.action]; }

  void start_ready() {
    while (const auto start = lanes_.next()) {
      const Place place = start->place;
      span(place) = {start->reached, Network::now(), 0};
      if (const std::int32_t transfer = lanes_.matching().transfer_of(place); transfer >= 0)
        arrived_[transfer].push_back(place);
      if (!start->begins.empty())
        begin(start->begins);
    }
  }

  void begin(Sides sides) {
    const auto activity = std::make_shared<Activity>(in_order_of_arrival(sides));
    const Place first = sides[0];
    const Action a = in_job(program_, action_at(program_, first), program_.replica_of(first.rank));
    if (is_collective(a.kind))
      add_collective(activity, a, sides);
    else if (is_point_to_point(a.kind))
      add_flow(activity, first.rank, a.peer, schedule::moved_bytes(a, step_.plan->layout));
    else
      add_local(activity, first.rank, costs_(program_.rank_of(first.rank), a));
    end_part(activity);
  }

  /// Which rank goes on first after a transfer decides who is first at a link that several need.
  std::vector<Place> in_order_of_arrival(Sides sides) {
    const std::int32_t transfer = lanes_.matching().transfer_of(sides[0]);
    if (transfer >= 0 && arrived_[transfer].size() == sides.size())
      return std::move(arrived_[transfer]);
    return {sides.begin(), sides.end()};
  }

  /// Returns what is to be called when another part of the activity is over.
  Network::Done part_of(const Shared& activity) {
    ++activity->parts;
    return [this, activity] {
      end_part(activity);
      start_ready();
    };
  }

  void end_part(const Shared& activity) {
    if (--activity->parts > 0)
      return;
    if (const double rest = std::exchange(activity->rest, 0); rest > 0)
      return Network::later(rest, part_of(activity));
    for (const Place side : activity->sides)
      span(side).end = Network::now();
    lanes_.finish(activity->sides, Network::now());
  }

  void add_local(const Shared& activity, int rank, double seconds) {
    if (machine_.processors == 0)
      activity->rest = seconds;
    else if (seconds > 0)
      network_.work(rank, seconds, part_of(activity));
  }

  /// The flows of a collective: rooted ones are a chain, the others a ring of slices. Pieces pass
  /// on as they come, so all links are busy at once; what it takes until the last link has its
  /// first piece comes on top.
  void add_collective(const Shared& activity, const Action& a, Sides sides) {
    const std::vector<int> members = list_of(sides, &Place::rank);
    const bool replicated = !step_.all_replicas &&  // the others are not simulated
                            program_.communicators[a.communicator].among_replicas();
    const int n = replicated ? program_.replicas : std::ssize(members);
    if (n < 2)
      return;
    const double bytes = schedule::moved_bytes(a, step_.plan->layout);
    const bool chain = is_rooted(a.kind);
    const double passes = a.kind == Kind::all_reduce ? 2 : 1;  // of the data, through the ring
    const double of_link = bytes * (chain ? 1 : passes * (n - 1) / n);
    const auto root = chain ? std::ranges::find(members, a.peer) - members.begin() : 0;
    const auto member = [&](int i) { return members[(root + i) % members.size()]; };

    const int links = replicated ? 1 : chain ? n - 1 : n;
    double slowest = machine_.inside_rate, longest = machine_.inside_latency;
    for (int i = 0; i < links; ++i) {
      int from = member(i), to = member(i + 1);
      if (a.kind == Kind::reduce)
        std::swap(from, to);
      if (!replicated && machine_.node_of(from) == machine_.node_of(to)) {
        add_flow(activity, from, to, of_link);
        continue;
      }
      longest = std::max(longest, machine_.latency);
      slowest = slowest > 0 ? std::min(slowest, machine_.rate) : machine_.rate;
      add_flows_of_nodes(activity, from, to, of_link);
    }
    const double piece = std::min<double>(bytes, schedule::piece_bytes);
    const double hops = passes * (n - 1) - 1;  // of a piece, after its first
    activity->rest = hops * (longest + (chain ? piece / slowest : 0));
  }

  /// A step of a ring from node to node, through all adapters, as libraries for devices do.
  void add_flows_of_nodes(const Shared& activity, int from, int to, double bytes) {
    const int count = machine_.adapters;
    if (count == 1 && from != to)
      return add_flow(activity, from, to, bytes);
    const int out = machine_.node_of(from) * count, in = machine_.node_of(to) * count;
    for (int i = 0; i < count; ++i)
      send(out + i, in + i, bytes / count, part_of(activity));
    add_work_of_sides(activity, from, to, bytes);
  }

  void add_flow(const Shared& activity, int from, int to, double bytes) {
    add_work_of_sides(activity, from, to, bytes);
    if (machine_.node_of(from) == machine_.node_of(to))
      return network_.flow(from, to, bytes, part_of(activity));
    if (!machine_.eager)
      return send(machine_.adapter_of(from), machine_.adapter_of(to), bytes, part_of(activity));
    std::deque<std::function<void()>>& messages = connections_[{from, to}];
    const auto passed = [&messages, done = part_of(activity)] {
      messages.pop_front();
      if (!messages.empty())
        messages.front()();
      done();
    };
    messages.push_back(
        [=, this] { send(machine_.adapter_of(from), machine_.adapter_of(to), bytes, passed); });
    if (messages.size() == 1)
      messages.front()();
  }

  /// Each side of a transfer moves its bytes once.
  void add_work_of_sides(const Shared& activity, int from, int to, double bytes) {
    if (machine_.processors > 0 && machine_.moving > 0)
      for (const int side : {from, to})
        network_.work(side, bytes / machine_.moving, part_of(activity), true);
  }

  void send(int adapter, int other, double bytes, Network::Done done) {
    sent_[adapter] += bytes;
    received_[other] += bytes;
    network_.between(adapter, other, bytes, std::move(done));
  }

  /// Actions of a lane count as finished in order, and the receive of an eager message when it has
  /// started too.
  void end_in_order() {
    for (const int r : indices(spans_)) {
      std::array<double, schedule::lanes> last{};
      for (const int i : indices(spans_[r])) {
        Span& s = spans_[r][i];
        double& lane = last[index_of(action_at(program_, {r, i}).lane)];
        s.end = lane = std::max({lane, s.begin, s.end});
      }
    }
  }

  const SimulatedStep& step_;
  const schedule::Program& program_ = *step_.plan->program;
  const Machine& machine_ = step_.machine;
  const schedule::Costs& costs_;
  Network network_;
  schedule::LaneMachine lanes_;
  std::vector<std::vector<Place>> arrived_;  ///< sides of each transfer that have started
  trace::StepSpans spans_;
  std::vector<double> sent_, received_;  ///< bytes, by adapter
  /// Eager messages from rank to rank pass one connection (TCP): one leaves when those before it
  /// have passed.
  std::map<std::pair<int, int>, std::deque<std::function<void()>>> connections_;
};

/// Runs `work` in a process of its own, since SimGrid has one platform in a process; prints its
/// errors.
void apart(const std::function<void()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0)
    throw std::runtime_error("no process for a prediction");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // who has asked may be interrupted
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

Prediction simulate(const SimulatedStep& step, const schedule::Costs& costs) {
  const schedule::Program& program = *step.plan->program;
  Prediction result{.spans = empty_spans(step)};
  auto all = result.spans | std::views::join;
  const auto actions = std::ranges::distance(all);
  const auto spans = shared<Span>(actions);
  const auto traffic = shared<AdapterBytes>(1);
  apart([&] {
    Simulation simulation(step, costs);
    simulation.run();
    *traffic.get() = simulation.traffic();
    std::ranges::copy(simulation.spans() | std::views::join, spans.get());
  });
  result.traffic = *traffic.get();
  std::copy_n(spans.get(), actions, all.begin());
  for (const int r : indices(result.spans))
    for (const int i : indices(result.spans[r])) {
      const Span& span = result.spans[r][i];
      result.seconds = std::max(result.seconds, span.end);
      if (is_communication(action_at(program, {r, i}).kind))
        result.transfer += span.end - span.begin;
    }
  result.transfer /= result.spans.size();
  result.account = trace::account(program, result.spans);
  return result;
}
}  // namespace minitaw::predict
