// SPDX-License-Identifier: BSD-3-Clause
// Times of transfers alone, on four ranks, by hand.
#include <array>
#include <gtest/gtest.h>
#include "machines.hpp"
#include "schedule/parse.hpp"

namespace minitaw::predict {
namespace {
using schedule::Action, schedule::Kind;
using Lines = std::array<std::string, 4>;  ///< of each rank
using Changes = std::vector<std::string>;

constexpr double exact = 1e-6;  // SimGrid's own precision is 1e-9 s

std::string send(int shard, int to, const std::string& lane = "inputs") {
  return fmt::format("   0 {}_send send W{} h0 -> r{}\n", lane, shard, to);
}

std::string recv(int shard, int from, int slot = 0, const std::string& lane = "inputs") {
  return fmt::format("   0 {}_recv recv W{} w{} <- r{}\n", lane, shard, slot, from);
}

/// The same call of all ranks, but the root's.
Lines all_ranks(const std::string& call, std::string of_root = "") {
  of_root = of_root.empty() ? call : of_root;
  return {of_root, call, call, call};
}

/// In seconds: a shard and the embeddings at 100 MB/s.
struct Units {
  double shard, embeddings;
};

struct Simulated {
  Prediction step;
  Units units;
};

/// An update takes as long as a shard.
Simulated simulated(const Lines& lines, const Machine& machine) {
  std::string text =
      "program transfers\nshards 4\nmicro_batches 4\nembeddings_parts 4\ngroups 2+2\n"
      "communicator world 0 1 2 3\n";
  for (std::size_t r = 0; r < 4; ++r)
    text += fmt::format("rank {0} slots h1 t1 w2 e1 f1 owned {0}\n{1}", r, lines[r]);
  const schedule::Program program = schedule::parse_program(text);
  const model::Layout layout = model::make_layout(shape_of(4), schedule::cut_of(program));
  const auto seconds = [](const model::Flat& flat) { return 4.0 * flat.elements / 100e6; };
  const double shard = seconds(layout.shards[0]);
  return {simulate(step_of(program, layout.shape, machine),
              [=](int, const Action& a) { return a.kind == Kind::update ? shard : 0; }),
      {shard, seconds(layout.embeddings)}};
}

const Lines one = {send(0, 2), "", recv(0, 0), ""},
            two = {send(0, 2), send(1, 3), recv(0, 0), recv(1, 1)},
            opposite = {send(0, 2), recv(3, 3), recv(0, 0), send(3, 1)},
            to_one = {send(0, 2),
                send(1, 2, "gradients"),
                recv(0, 0) + recv(1, 1, 1, "gradients"),
                ""},
            both = {send(0, 2) + recv(2, 2), "", recv(0, 0) + send(2, 0), ""},
            gather = all_ranks("   0 inputs_recv all_gather E e0 @world\n"),
            sum = all_ranks("   0 gradients_group all_reduce G0 t0 @world\n"),
            chain = all_ranks("   0 inputs_group broadcast W0 w0 root r0 @world\n",
                "   0 inputs_group broadcast W0 h0 root r0 @world\n"),
            reduce = all_ranks("   0 gradients_group reduce G0 t0 root r0 @world\n"),
            // Rank 2 first receives from rank 3 of its node, what that has at once or gets from 1.
    soon = {send(0, 2), "", recv(3, 3, 1) + recv(0, 0), send(3, 2)};

TEST(Network, TransfersTakeWhatLinksAndProcessorsAllow) {
  const std::string slow = "device.moving=20 MB/s", alone = "device.processors=1",
                    pair = "device.processors=2", adapters = "between.adapters=2",
                    eager = "between.protocol=eager", pairs = "inside.kind=pairs",
                    memory = "inside.kind=memory", late = "inside.latency=2 ms",
                    ms = "between.latency=1 ms";
  const auto taper = [](double share) { return fmt::format("between.taper={}", share); };

  const struct {
    Lines lines;
    int nodes;
    Changes changes;
    double shards, embeddings = 0, seconds = 0;
    double busiest = -1, between = -1;     ///< shards
  } all[] = {{one, 2, {}, 1, 0, 0, 1, 1},  // has its link alone
      {one, 2, {ms}, 1, 0, 1e-3},
      {one, 1, {}, 0.1, 0, 0, 0, 0},
      {two, 2, {}, 2, 0, 0, 2, 2},  // out of one adapter
      {two, 2, {adapters}, 1, 0, 0, 1, 2},
      {opposite, 2, {}, 1, 0, 0, 1, 2},  // directions do not share
      {two, 4, {}, 1},
      {two, 4, {taper(0.5)}, 1},  // together as much as two adapters
      {two, 4, {taper(0.25)}, 2},
      {one, 4, {taper(0.125)}, 2},
      {opposite, 2, {taper(0.5)}, 2},
      // a switch, links of pairs, one memory
      {one, 1, {late}, 0.1, 0, 2e-3},
      {to_one, 1, {late}, 0.2, 0, 2e-3},
      {both, 1, {late}, 0.1, 0, 2e-3},
      {one, 1, {pairs, late}, 0.1, 0, 2e-3},
      {to_one, 1, {pairs}, 0.1},
      {both, 1, {pairs}, 0.1},
      {one, 1, {memory, late}, 0.1, 0, 2e-3},
      {to_one, 1, {memory}, 0.2},
      {both, 1, {memory}, 0.2},
      // Each side moves its bytes once, at a fifth of the wire's rate.
      {one, 2, {alone, slow}, 5},
      {one, 1, {alone, slow}, 10},
      {one, 1, {pair, slow}, 5},
      {two, 2, {alone, slow}, 10},
      {two, 2, {pair, slow}, 5},
      {one, 2, {alone, slow, eager}, 5},
      {gather, 2, {alone, slow}, 0, 3 * 5},
      {gather, 2, {alone, slow, adapters}, 0, 3 * 5},
      {one, 2, {alone, "device.moving=20 GB/s"}, 1},  // hidden by the wire
      // A ring takes three quarters of the buffer over each link, and each of three hops the
      // latency.
      {gather, 2, {}, 0, 0.75},
      {gather, 2, {ms}, 0, 0.75, 3e-3},
      {gather, 2, {adapters}, 0, 0.75 / 2},  // all adapters of a node
      {gather, 2, {taper(0.5)}, 0, 2 * 0.75},
      {sum, 2, {ms}, 1.5, 0, 6e-3},  // twice around
      // The last link of a chain begins once two have passed on the first piece, here all of it.
      {chain, 2, {}, 3, 0, 0, 1, 1},
      {chain, 4, {}, 3},
      {reduce, 2, {}, 3, 0, 0, 1, 1},
      {soon, 2, {}, 1.1},
      {soon, 2, {eager}, 1}};

  for (const auto& [lines, nodes, changes, shards, embeddings, seconds, busiest, between] : all) {
    SCOPED_TRACE(fmt::format("row {}", &lines - &all[0].lines));
    const auto [step, unit] = simulated(lines, machine(nodes, 4 / nodes, changes));
    EXPECT_NEAR(step.seconds, shards * unit.shard + embeddings * unit.embeddings + seconds, exact);
    for (const auto& [found, expected] :
        {std::pair(step.traffic.busiest, busiest), {step.traffic.between, between}})
      if (expected >= 0) {
        EXPECT_NEAR(found, expected * unit.shard * 100e6, 1);
      }
  }
}

/// In shards, when an action ends.
TEST(Network, MessagesOfALaneTakeTurns) {
  const Lines apart = {send(0, 2) + send(0, 3), "", recv(0, 0), recv(0, 0)},
              same = {send(0, 2) + send(0, 2), "", recv(0, 0) + recv(0, 0, 1), ""},
              late = {send(0, 2),
                  send(1, 3),
                  recv(1, 3, 1) + recv(0, 0),
                  recv(1, 1) + "   0 inputs_send send W1 w0 -> r2 after inputs_recv:1\n"},
              busy = {"   0 compute update W0 h0 t0\n" + send(0, 2), "", recv(0, 0), ""};
  const std::string several = "between.messages=2", eager = "between.protocol=eager";

  const struct {
    Lines lines;
    Changes changes;
    int rank, action;
    double shards, within = exact;
  } all[] = {{apart, {}, 2, 0, 1},
      {apart, {several}, 2, 0, 2},
      {apart, {several}, 3, 0, 2},
      {apart, {}, 3, 0, 2},
      {same, {several}, 2, 0, 2},
      {same, {several, eager}, 2, 0, 1},  // one connection of two ranks
      {apart, {several, eager}, 2, 0, 2},
      // An eager message does not wait for its receive, and both share the adapter.
      {late, {}, 0, 0, 2.1},
      {late, {eager}, 0, 0, 2},
      {late, {eager}, 2, 1, 2.1},  // the receive finds the data
      // Moving goes before all computing.
      {busy, {"device.processors=1", "device.moving=100 MB/s"}, 2, 0, 1, 2e-5}};

  for (const auto& [lines, changes, rank, action, shards, within] : all) {
    SCOPED_TRACE(fmt::format("row {}", &lines - &all[0].lines));
    const auto [step, unit] = simulated(lines, machine(2, 2, changes));
    EXPECT_NEAR(step.spans[rank][action].end, shards * unit.shard, within);
  }
}
}  // namespace
}  // namespace minitaw::predict
