// SPDX-License-Identifier: BSD-3-Clause
// Steps in a network whose adapters share their rate among the messages that pass them, as a real
// one does: those of the prediction, which knows nothing of blame.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include "instruments/blame/blame.hpp"
#include "instruments/predict/predict.hpp"
#include "schedule/shapes.hpp"

namespace minitaw::blame {
namespace {
using testing::AnyOf, testing::EndsWith, testing::HasSubstr;

struct Network {
  topology::Groups nodes;
  double flops = 1e8;  ///< of a rank, FLOP/s; an adapter moves 1 MB/s
  int slow_node = -1;  ///< its adapter has half of that
  int slow_rank = -1;  ///< it computes in twice the time
  bool eager = true;   ///< messages leave with their send
  std::string crowd{};
};

struct Step {
  Finding finding;
  double seconds = 0;
};

Step step_of(const std::string& spec, const Network& network) {
  const int ranks = network.nodes.ranks(), nodes = network.nodes.count();
  const schedule::Program program =
      schedule::build({schedule::parse_spec(spec), network.nodes, 2 * ranks, ranks});
  const model::Layout layout =
      model::make_layout({ranks, 64, 2, 2, std::vector<std::int64_t>(ranks, 128), 64, 16, 1},
          schedule::cut_of(program));
  predict::Machine machine;
  machine.nodes = nodes;
  machine.ranks_per_node = ranks / nodes;
  machine.own.resize(ranks);
  machine.inside_rate = 1e12;
  machine.rate = 1e6;
  machine.rates.assign(nodes, machine.rate);
  if (network.slow_node >= 0)
    machine.rates[network.slow_node] /= 2;
  machine.messages = network.eager ? 4 : 1;
  machine.eager = network.eager;
  const auto costs = [&](int rank, const schedule::Action& action) {
    const double work =
        schedule::flops(action, layout) + touched_bytes(program, rank, action, layout);
    return (rank == network.slow_rank ? 2 : 1) * work / network.flops;
  };
  const predict::Prediction step = predict::simulate(program, layout, machine, costs);
  const std::vector<trace::StepSpans> steps(5, step.spans);
  return {find_culprit(program, layout, {}, {network.nodes, network.crowd}, steps), step.seconds};
}

const std::vector<topology::Groups> networks = {topology::Groups({2, 2, 2}),
    topology::Groups({1, 1, 1}),
    topology::Groups::equal(8, 4),
    topology::Groups::equal(12, 6)};
const std::vector<std::string> specs = {"tawpipe", "tawpipe:gwps=off", "weipipe", "1f1b", "zb2"};
/// From ranks that compute nearly all the time to ranks that nearly always wait for messages.
const std::vector<double> speeds = {1e7, 1e8, 1e11};

/// Schedules load equal adapters unlike, and let messages wait for each other.
TEST(Links, NoLinkIsNamedWhereAllAdaptersAreAlike) {
  for (const topology::Groups& nodes : networks)
    for (const std::string& spec : specs)
      for (const double flops : speeds)
        for (const bool eager : {true, false}) {
          const Finding found =
              step_of(spec, {.nodes = nodes, .flops = flops, .eager = eager}).finding;
          EXPECT_EQ(found.culprit, "")
              << spec << " " << nodes.text() << " " << flops << ": " << found.text;
        }
}

/// The slow one, or one of its links, or none: never another one. Its rate is right wherever it
/// is named.
TEST(Links, TheSlowAdapterIsNamedAndNoOther) {
  int named = 0, tries = 0;
  for (const topology::Groups& nodes : networks)
    for (const std::string& spec : specs)
      for (const double flops : speeds)
        for (int slow = 0; slow < nodes.count(); ++slow) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", spec, nodes.text(), flops, slow));
          Network network{.nodes = nodes, .flops = flops, .slow_node = slow};
          const auto [found, seconds] = step_of(spec, network);
          ++tries;
          if (found.culprit.empty())
            continue;
          ++named;
          const std::string number = std::to_string(slow);
          EXPECT_THAT(found.culprit, AnyOf(EndsWith(number), HasSubstr(" " + number + " and")))
              << found.text;
          EXPECT_NEAR(found.slower, 1, 1e-6) << found.text;
          network.slow_node = -1;
          EXPECT_LE(found.share, 1 - step_of(spec, network).seconds / seconds + 0.03) << found.text;
        }
  RecordProperty("named", named);
  fmt::print("named in {} of {} tries\n", named, tries);
  for (const int slow : {1, 2, 3, 4})
    EXPECT_EQ(step_of("1f1b", {.nodes = networks[3], .slow_node = slow}).finding.culprit,
        fmt::format("the adapter of node {}", slow));
}

/// TawPipe's messages always meet others on an adapter: nothing is said of links that nothing is
/// known of.
TEST(Links, AreNotJudgedWhereMessagesNeverPassAlone) {
  EXPECT_EQ(step_of("tawpipe", {.nodes = networks[0], .flops = 1e11, .slow_node = 2}).finding.text,
      "no rank stands out");
  EXPECT_EQ(step_of("1f1b", {.nodes = networks[0]}).finding.text, "no rank or link stands out");
}

TEST(Links, NoRankIsNamedWhereRanksShareCores) {
  const Network network{
      .nodes = networks[1], .slow_node = 1, .slow_rank = 2, .crowd = "3 threads share 2 cores"};
  const Finding found = step_of("weipipe", network).finding;
  EXPECT_EQ(found.text,
      "no rank or link is judged: 3 threads share 2 cores; minitaw screen measures each alone");
  EXPECT_EQ(std::tuple(found.culprit, std::isnan(found.slower), std::isnan(found.share)),
      std::tuple("", true, true));
}

/// What costs more is named; of a slow link of a slow rank the rank.
TEST(Links, OfTwoCausesTheOneThatCostsMoreIsNamed) {
  Network network{.nodes = topology::Groups::equal(4, 4), .slow_node = 1, .slow_rank = 3};
  EXPECT_EQ(step_of("1f1b", network).finding.culprit, "rank 3 (node 3)");
  network.flops = 1e11;
  EXPECT_EQ(step_of("1f1b", network).finding.culprit, "the adapter of node 1");
  network.slow_rank = 1;
  EXPECT_EQ(step_of("1f1b", network).finding.culprit, "rank 1 (node 1)");
}
}  // namespace
}  // namespace minitaw::blame
