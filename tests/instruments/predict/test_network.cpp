// SPDX-License-Identifier: BSD-3-Clause
// Times of transfers alone, on four ranks, by hand.
#include <array>
#include <gtest/gtest.h>
#include "machines.hpp"
#include "schedule/parse.hpp"

namespace minitaw::predict {
namespace {
using Lines = std::array<std::string, 4>;  ///< of each rank
using Changes = std::vector<std::string>;

/// Seconds at 100 MB/s: of a block, and of the embeddings in four parts of 33 * 64 elements.
constexpr double shard = 4 * (2 * 64 + 64 * (4 * 64 + 3 * 128)) / 100e6,
                 embeddings = 4 * 4 * 33 * 64 / 100e6;

std::string send(int what, int to, const std::string& lane = "inputs") {
  return fmt::format("   0 {}_send send W{} h0 -> r{}\n", lane, what, to);
}

std::string recv(int what, int from, int slot = 0, const std::string& lane = "inputs") {
  return fmt::format("   0 {}_recv recv W{} w{} <- r{}\n", lane, what, slot, from);
}

/// A collective of all ranks.
Lines together(const std::string& call) {
  const std::string line = "   0 inputs_group " + call + "\n";
  return {line, line, line, line};
}

/// An update takes as long as a shard.
Prediction simulated(const Lines& lines, int nodes, const Changes& changes) {
  std::string text =
      "program transfers\nshards 4\nmicro_batches 4\nembeddings_parts 4\ngroups 2+2\n"
      "communicator world 0 1 2 3\n";
  for (std::size_t r = 0; r < 4; ++r)
    text += fmt::format("rank {0} slots h1 t1 w2 e1 f1 owned {0}\n{1}", r, lines[r]);
  return simulate(
      step_of(schedule::parse_program(text), shape_of(4), machine(nodes, 4 / nodes, changes)),
      [](int, const schedule::Action& a) { return a.kind == schedule::Kind::update ? shard : 0; });
}

const Lines single = {send(0, 2), "", recv(0, 0), ""},
            two = {send(0, 2), send(1, 3), recv(0, 0), recv(1, 1)},
            opposite = {send(0, 2), recv(3, 3), recv(0, 0), send(3, 1)},
            to_one = {send(0, 2), send(1, 2, "gradients"), recv(0, 0) + recv(1, 1, 1, "gradients")},
            both = {send(0, 2) + recv(2, 2), "", recv(0, 0) + send(2, 0)},
            gather = together("all_gather E e0 @world"), sum = together("all_reduce G0 t0 @world"),
            chain = together("broadcast W3 w0 root r3 @world"),
            reduce = together("reduce G0 t0 root r0 @world"),
            // Rank 2 first receives from rank 3 of its node.
    soon = {send(0, 2), "", recv(3, 3, 1) + recv(0, 0), send(3, 2)};

TEST(Network, TransfersTakeWhatLinksAndProcessorsAllow) {
  const std::string slow = "device.moving=20 MB/s", alone = "device.processors=1",
                    adapters = "between.adapters=2", eager = "between.protocol=eager",
                    pairs = "inside.kind=pairs", memory = "inside.kind=memory",
                    late = "inside.latency=2 ms", ms = "between.latency=1 ms",
                    half = "between.taper=0.5";
  for (const auto& [lines, nodes, changes, expected] :
      Rows<Lines, int, Changes, double>{{single, 2, {ms}, 1e-3 + shard},  // has its link alone
          {two, 2, {}, 2 * shard},                                        // out of one adapter
          {two, 2, {adapters}, shard},
          {opposite, 2, {}, shard},                     // directions do not share
          {two, 4, {"between.taper=0.25"}, 2 * shard},  // together as much as one adapter
          {opposite, 2, {half}, 2 * shard},
          // a switch, links of pairs, one memory
          {to_one, 1, {}, shard / 5},
          {both, 1, {late}, 2e-3 + shard / 10},
          {to_one, 1, {pairs, late}, 2e-3 + shard / 10},
          {both, 1, {pairs}, shard / 10},
          {single, 1, {memory, late}, 2e-3 + shard / 10},
          {both, 1, {memory}, shard / 5},
          // Each side moves its bytes once, at a fifth of the wire's rate.
          {single, 2, {alone, slow}, 5 * shard},
          {single, 1, {alone, slow}, 10 * shard},
          {two, 2, {"device.processors=2", slow}, 5 * shard},
          {single, 2, {alone, slow, eager}, 5 * shard},
          {gather, 2, {alone, slow}, 15 * embeddings},
          {gather, 2, {alone, slow, adapters}, 15 * embeddings},
          {single, 2, {alone, "device.moving=20 GB/s"}, shard},  // hidden by the wire
          // A ring takes three quarters of the buffer over each link, each of three hops a latency.
          {gather, 2, {ms}, 3e-3 + 0.75 * embeddings},
          {gather, 2, {adapters}, 0.375 * embeddings},  // all adapters of a node
          {gather, 2, {half}, 1.5 * embeddings},
          {sum, 2, {ms}, 6e-3 + 1.5 * shard},  // twice around
          // The last link begins once two have passed on the first piece, here all of it.
          {chain, 2, {}, 3 * shard},
          {chain, 4, {}, 3 * shard},
          {reduce, 2, {}, 3 * shard},
          {soon, 2, {}, 1.1 * shard},
          {soon, 2, {eager}, shard}})
    EXPECT_NEAR(simulated(lines, nodes, changes).seconds, expected, 1e-6)
        << lines[0] << nodes << testing::PrintToString(changes);
}

/// When an action of a rank ends.
TEST(Network, MessagesOfALaneTakeTurns) {
  const Lines apart = {send(0, 2) + send(0, 3), "", recv(0, 0), recv(0, 0)},
              same = {send(0, 2) + send(0, 2), "", recv(0, 0) + recv(0, 0, 1)},
              // Rank 2 first receives from rank 3 what that gets from rank 1.
      late = {send(0, 2),
          send(1, 3),
          recv(1, 3, 1) + recv(0, 0),
          recv(1, 1) + "   0 inputs_send send W1 w0 -> r2 after inputs_recv:1\n"},
              busy = {"   0 compute update W0 h0 t0\n" + send(0, 2), "", recv(0, 0)};
  const std::string several = "between.messages=2", eager = "between.protocol=eager";
  for (const auto& [lines, changes, rank, action, shards] :
      Rows<Lines, Changes, int, int, double>{{apart, {}, 2, 0, 1},
          {apart, {}, 3, 0, 2},
          {apart, {several}, 2, 0, 2},
          {same, {several}, 2, 0, 2},
          {same, {several, eager}, 2, 0, 1},  // one connection of two ranks
          {apart, {several, eager}, 2, 0, 2},
          // An eager message does not wait for its receive; both share the adapter.
          {late, {}, 0, 0, 2.1},
          {late, {eager}, 0, 0, 2},
          {late, {eager}, 2, 1, 2.1},  // the receive finds the data
          // Moving goes before all computing.
          {busy, {"device.processors=1", "device.moving=100 MB/s"}, 2, 0, 1}})
    EXPECT_NEAR(simulated(lines, 2, changes).spans[rank][action].end, shards * shard, 0.01 * shard)
        << lines[0] << testing::PrintToString(changes);
}
}  // namespace
}  // namespace minitaw::predict
