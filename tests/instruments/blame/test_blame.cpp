// SPDX-License-Identifier: BSD-3-Clause
// Steps are planned with the plan's own clock, where a rank, node or link is slow by as much as the
// test says, and noise as much as it says; what the step would be without it is planned once more.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <random>
#include "instruments/blame/blame.hpp"
#include "schedule/measured.hpp"
#include "schedule/parse.hpp"
#include "schedule/shapes.hpp"
#include "this_run.hpp"

namespace minitaw::blame {
namespace {
using schedule::Action, schedule::Program, testing::HasSubstr, testing::StartsWith,
    trace::StepSpans;

/// A job whose ranks take as long as others by these factors.
struct Job {
  Program program;
  model::Layout layout;
  topology::Groups nodes;
  std::map<int, double> rank{};     ///< by rank
  std::map<int, double> port{};     ///< transfers of a rank
  std::vector<std::int64_t> own{};  ///< B of each rank, if they differ
  double noise = 0;  ///< standard deviation of the logarithm of an action's time, half of it in
                     ///< common for a rank
  double burst = 0;  ///< share of (step, rank) in which everything takes three times as long
  double inside = 1e-4,
         between = 1e-3;  ///< seconds of a transfer to those of a block's forward, 1e-3

  Job(const char* spec, const topology::Groups& on, int layers, int replicas = 1)
      : program(
            schedule::build({schedule::parse_spec(spec), on, 2 * on.ranks(), layers, replicas})),
        layout(model::make_layout(
            {layers, 64, 2, 2, std::vector<std::int64_t>(layers, 128), 64, 16, 1},
            schedule::cut_of(program))),
        nodes(on) {}

  [[nodiscard]] double slow(int r) const { return rank.contains(r) ? rank.at(r) : 1; }

  /// Seconds of a transfer.
  [[nodiscard]] double seconds_of_transfer(int from, const Action& a) const {
    std::set<int> passed, ends = {from};
    if (is_point_to_point(a.kind))
      ends.insert(a.peer);
    else
      for (const int member : program.communicators[a.communicator].ranks)
        ends.insert(member);
    double held = 1;
    for (const int r : ends) {
      passed.insert(nodes.group_of(r));
      if (port.contains(r))
        held = port.at(r);
    }
    return held * (passed.size() < 2 ? inside : between);
  }

  [[nodiscard]] StepSpans step(unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::vector<double> common;
    for (std::size_t r = 0; r < program.ranks.size(); ++r) {
      common.push_back(std::exp(0.5 * noise * normal(random)));
      if (std::uniform_real_distribution<double>()(random) < burst)
        common.back() *= 3;
    }
    const StepSpans spans = simulate(program, [&](int r, const Action& a) {
      const double drawn = common[r] * std::exp(noise * normal(random));
      if (is_communication(a.kind))
        return seconds_of_transfer(r, a) * drawn;
      const bool parted = !own.empty() && a.micro_batch >= 0;
      return (parted ? static_cast<double>(own[r]) / 3 : 1) * slow(r) * drawn *
             (2e-9 * flops(a, layout) + 1e-10 * touched_bytes(program, r, a, layout));
    });
    return as_measured(program, spans);
  }

  [[nodiscard]] Finding find(int steps = 9) const {
    std::vector<StepSpans> all;
    for (int s = 0; s < steps; ++s)
      all.push_back(step(test::seed() + static_cast<unsigned>(s)));
    return find_culprit(program, layout, own, {nodes}, all);
  }

  [[nodiscard]] double length() const {
    return schedule::idle(program, step(test::seed())).seconds;
  }
};

const std::vector<topology::Groups> nodes_of_ranks = {topology::Groups({3}),
    topology::Groups({2, 2}),
    topology::Groups({1, 2, 2}),
    topology::Groups({2, 2, 2}),
    topology::Groups({4, 3}),
    topology::Groups::equal(8, 4)};

/// Those that run on these nodes.
std::vector<const char*> specs_of(const topology::Groups& nodes) {
  std::vector<const char*> all;
  for (const char* spec :
      {"tawpipe", "fsdp", "fsdp:hierarchical=on", "weipipe", "ddp", "1f1b", "zb1", "zb2"})
    if (schedule::possible({schedule::parse_spec(spec), nodes, 2 * nodes.ranks(), nodes.ranks()}))
      all.push_back(spec);
  return all;
}

TEST(Blame, NamesTheRankAndWhatTheStepWouldBeWithoutIt) {
  for (const topology::Groups& nodes : nodes_of_ranks)
    for (const char* spec : specs_of(nodes))
      for (const double factor : {1.08, 1.5}) {
        SCOPED_TRACE(fmt::format("{} {} {}", spec, nodes.text(), factor));
        const int ranks = nodes.ranks(), who = ranks - 2;
        Job job(spec, nodes, ranks);
        job.noise = 0.01;
        job.between = 4e-3;
        job.rank = {{who, factor}};
        const Finding found = job.find();
        const std::string name = nodes.count() == 1
                                     ? fmt::format("rank {}", who)
                                     : fmt::format("rank {} (node {})", who, nodes.group_of(who));
        EXPECT_EQ(found.culprit, name) << found.text;
        EXPECT_THAT(found.text, StartsWith(name + " computes ")) << found.text;
        EXPECT_NEAR(found.slower, factor - 1, 0.03);
        EXPECT_NEAR(found.ratios[who], factor, 0.03);
        const double slow = job.length();
        job.rank.clear();
        EXPECT_NEAR(found.share, 1 - job.length() / slow, 0.02) << found.text;
      }
}

/// What slows a rank may slow its transfers too: they are compared with others', or the step may be
/// shorter still.
TEST(Blame, WithoutASlowRankItsTransfersAreFastToo) {
  for (const auto& [spec, compared] :
      {std::pair{"tawpipe", true}, {"weipipe", true}, {"1f1b", true}, {"ddp", false}}) {
    Job job(spec, topology::Groups({2, 2, 2}), 6);
    job.rank = {{4, 1.5}};
    job.port = {{4, 4}};
    const Finding found = job.find();
    EXPECT_EQ(found.culprit, "rank 4 (node 2)");
    EXPECT_EQ(found.text.find("at least") == std::string::npos, compared) << found.text;
    const double slow = job.length();
    job.rank.clear();
    if (compared)
      job.port.clear();
    const double truth = 1 - job.length() / slow;
    EXPECT_LE(found.share, truth + 0.01) << spec << ": " << found.text;
    EXPECT_GE(found.share, truth - 0.035)
        << spec << ": the few that none can be compared with stay as they are";
  }
}

using Seconds = std::vector<std::vector<double>>;  ///< [step][rank]

/// Every rank computes the same once in a step; the job may have more ranks than these.
Finding finding_of(const Seconds& seconds, const topology::Groups& nodes) {
  std::string text = "program alike\nshards 1\ngroups 1\n";
  for (std::size_t r = 0; r < seconds[0].size(); ++r)
    text += fmt::format("rank {0} slots h1 a1 x1 owned 0\n 0 compute F s0 m{0} h0 a0 x0\n", r);
  const Program program = schedule::parse_program(text);
  const auto layout =
      model::make_layout({1, 64, 2, 2, {128}, 64, 16, 1}, schedule::cut_of(program));
  std::vector<StepSpans> steps;
  for (const std::vector<double>& step : seconds) {
    StepSpans& spans = steps.emplace_back();
    for (const double taken : step)
      spans.push_back({{0, 0, taken}});
  }
  return find_culprit(program, layout, {}, {nodes}, steps);
}

Finding finding_of(const Seconds& seconds) {
  return finding_of(seconds, topology::Groups({static_cast<int>(seconds[0].size())}));
}

/// As often as there are steps, of ranks that take one second and these.
Seconds alike(int steps, int usual, const std::vector<double>& others) {
  std::vector<double> step(usual, 1.0);
  step.insert(step.end(), others.begin(), others.end());
  return Seconds(steps, step);
}

/// On both sides of every limit of docs/results.md, by hand.
TEST(Blame, ARankStandsOutBeyondEveryLimit) {
  // Robust deviation of eight: 1.4826 * 0.02, four of them 0.1186. Of the rank's own 1.2 +- 0.0n in
  // nine steps: 1.4826 * 1.25 / 3, four of them 2.471 of what its lower quartile is below the
  // median.
  const std::vector<double> spread = {0.98, 0.98, 0.98, 0.98, 1.02, 1.02, 1.02, 1.02};
  const auto followed_by = [](std::vector<double> list, double last) {
    list.push_back(last);
    return list;
  };
  const auto varying = [](int steps, int lower, double low) {
    Seconds all = alike(steps, 9, {1.2});
    for (int s = 0; s < lower; ++s)
      all[s].back() = low;
    return all;
  };
  for (const auto& [what, quiet, loud] : std::vector<std::tuple<const char*, Seconds, Seconds>>{
           {"5 %", alike(3, 8, {1.045}), alike(3, 8, {1.055})},
           {"one peer: 20 %", alike(3, 1, {1.19}), alike(3, 1, {1.21})},
           {"two steps: 20 %", alike(2, 8, {1.19}), alike(2, 8, {1.21})},
           {"three steps: 5 %", alike(2, 8, {1.19}), alike(3, 8, {1.19})},
           {"four deviations",
               alike(3, 1, followed_by(spread, 1.11)),
               alike(3, 1, followed_by(spread, 1.13))},
           {"few peers: the oddest", alike(3, 6, {1.06, 1.11}), alike(3, 6, {1.06, 1.13})},
           {"many: not the oddest", alike(3, 6, {1.06, 1.11}), alike(3, 7, {1.06, 1.11})},
           {"four errors", varying(9, 3, 1.11), varying(9, 3, 1.13)},
           {"of few steps they are larger", varying(4, 1, 1.13), varying(9, 3, 1.13)}}) {
    EXPECT_EQ(finding_of(quiet).text, "no rank stands out") << what;
    EXPECT_EQ(finding_of(loud).culprit, fmt::format("rank {}", loud[0].size() - 1)) << what;
  }
}

/// Ranks 2 to 4 are node 1. Its median counts, unless one takes more than twice what another takes
/// longer.
TEST(Blame, ANodeHasTheMedianOfItsRanks) {
  const topology::Groups nodes({2, 3, 4});
  const auto step = [&](double least) {
    return finding_of(Seconds(3, {1, 1, 1.2, 1.25, least, 1, 1, 1, 1}), nodes);
  };
  const Finding found = step(1.35);
  EXPECT_EQ(found.text,
      "node 1 computes 25 % slower than the median of 9 ranks; without it the step would be 20 % "
      "shorter");
  EXPECT_NEAR(found.slower, 0.25, 1e-12);
  EXPECT_NEAR(found.share, 1 - std::max(1.35 / 1.25, 1.0) / 1.35, 1e-12);
  EXPECT_EQ(step(1.41).culprit, "rank 4 (node 1)");
  EXPECT_EQ(finding_of(Seconds(3, {1, 1, 1.3}), nodes).culprit, "rank 2 (node 1)");
  EXPECT_EQ(finding_of(Seconds(3, {1, 1.3}), nodes).culprit, "rank 1")
      << "all on one node of the job";
}

/// Ratios are medians over all steps; what the step would be is of the first one.
TEST(Blame, RatiosAreOfAllStepsAndTheShareOfTheFirst) {
  const Finding found =
      finding_of({{2, 5, 1.8}, {1, 1.6, 0.9}, {1, 1.5, 0.9}, {1, 1.7, 0.9}, {1, 1.4, 0.9}});
  EXPECT_THAT(found.ratios, testing::ElementsAre(1, 1.6, 0.9));
  EXPECT_NEAR(found.slower, 1.6 / 0.95 - 1, 1e-12);
  EXPECT_NEAR(found.share, 1 - 0.95 / 1.6, 1e-12);
  EXPECT_TRUE(finding_of({{1, 2, 1}}).culprit == "rank 1" && finding_of({{1}}).text.empty());
}

/// The clock of rank 1's computing is so much early that it begins before its weights are there.
TEST(Blame, AStepThatDoesNotComeOutTheSameTellsNoShare) {
  const Program program = schedule::parse_program(R"(program early
shards 1
groups 1+1
rank 0 slots h1 a1 x1 owned 0
   0 compute         F s0 m0 h0 a0 x0
   0 inputs_send     send W0 h0 -> r1 after compute:1
rank 1 slots w1 a1 x1 owned
   0 inputs_recv     recv W0 w0 <- r0
   0 compute         F s0 m1 w0 a0 x0 after inputs_recv:1
)");
  const auto layout =
      model::make_layout({1, 64, 2, 2, {128}, 64, 16, 1}, schedule::cut_of(program));
  const std::string said = "rank 0 (node 0) computes 100 % slower than the median of 2 ranks";
  for (const auto& [early, end] :
      {std::pair{0.2, "; without it the step would be at least 25 % shorter"}, {0.3, ""}}) {
    const StepSpans spans = {{{0, 0, 4}, {0, 4, 6}}, {{0, 0, 6}, {0, 6 - early, 8 - early}}};
    const Finding found =
        find_culprit(program, layout, {}, {topology::Groups({1, 1})}, std::array{spans});
    EXPECT_EQ(found.text, said + end);
    EXPECT_EQ(std::isnan(found.share), early > 0.25);
  }
}

/// Two messages on every link of three nodes, each alone on its adapters; receivers are there
/// before them. In `held_steps` of three those of the slow links take `times` as long, of node 2
/// `last` times that. They carry `shard`; 1 is the larger.
Finding finding_of(const std::set<std::pair<int, int>>& slow,
    double times,
    double last = 1,
    int held_steps = 3,
    int shard = 0) {
  std::string text = "program links\nshards 2\ngroups 1+1+1\n";
  StepSpans spans(3), usual(3);
  for (int r = 0; r < 3; ++r) {
    text += fmt::format("rank {} slots h2 w4 owned 0 1\n", r);
    for (const bool sends : {true, false})
      for (int k = 0; k < 4; ++k) {
        const int other =
            (r + ((k < 2) == sends ? 1 : 2)) % 3;  // all to the right, then all to the left
        const bool held = slow.contains(std::minmax(r, other));
        const int moved = held ? shard : 0;
        text += sends ? fmt::format(" 0 inputs_send send W{0} h{0} -> r{1}\n", moved, other)
                      : fmt::format(" 0 inputs_recv recv W{} w{} <- r{}\n", moved, k, other);
        const double end = std::max(r, other) == 2 ? last * times : times;
        const double begin = 10 * k;
        usual[r].push_back({0, begin, begin + 1});
        spans[r].push_back(held ? schedule::Span{0, begin, begin + end} : usual[r].back());
      }
  }
  const Program program = schedule::parse_program(text);
  const auto layout =
      model::make_layout({2, 64, 2, 2, {128, 512}, 64, 16, 1}, schedule::cut_of(program));
  std::vector<StepSpans> steps(held_steps, spans);
  steps.resize(3, usual);
  return find_culprit(program, layout, {}, {topology::Groups({1, 1, 1})}, steps);
}

TEST(Blame, ALinkOrAdapterStandsOutBeyondEveryLimit) {
  EXPECT_EQ(finding_of({{0, 1}}, 1.24).text, "no rank or link stands out");
  EXPECT_EQ(finding_of({{0, 1}}, 1.5, 1, 1).text, "no rank or link stands out")
      << "in one step of three";
  EXPECT_EQ(finding_of({{0, 1}}, 3, 1, 3, 1).text, "no rank or link stands out")
      << "larger messages";
  const Finding link = finding_of({{0, 1}}, 5);
  EXPECT_EQ(link.text,
      "the link of nodes 0 and 1 moves data at 20 % of the median rate of 6 links; without it the "
      "step would be at least 11 % shorter");
  EXPECT_NEAR(link.slower, 4, 1e-12);
  EXPECT_NEAR(link.share, 1 - 31 / 35.0, 1e-12) << "the last message begins when it did";
  EXPECT_EQ(finding_of({{0, 1}}, 1.26).culprit, "the link of nodes 0 and 1");
  EXPECT_EQ(finding_of({{1, 2}}, 1.26).culprit, "the link of nodes 1 and 2");
  const std::set<std::pair<int, int>> of_node_1 = {{0, 1}, {1, 2}};
  EXPECT_EQ(finding_of(of_node_1, 1.24).culprit, "");
  const Finding adapter = finding_of(of_node_1, 2, 1.4);
  EXPECT_EQ(adapter.text,
      "the adapter of node 1 moves data at 50 % of the median rate of 3 adapters; without it the "
      "step would be at least 9 % shorter");
  EXPECT_NEAR(adapter.share, 1 - 30 / 32.8, 1e-12)
      << "the last message begins earlier, as the one before it ends";
  EXPECT_NE(finding_of(of_node_1, 2, 1.6).culprit, "the adapter of node 1")
      << "more than twice the least";
}

/// The last stage has the LM head, the first ones more blocks, one its wider blocks, ranks their
/// own B.
TEST(Blame, IsOfWorkOfTheSameFlopsAlone) {
  for (const char* spec : {"1f1b", "zb1", "zb2"}) {
    Job plain(spec, topology::Groups({2, 2}), 5), job = plain;
    EXPECT_EQ(plain.find().culprit, "") << spec;
    job.layout.shape.vocab = 4096;
    job.layout.shape.ffn.back() = 512;
    EXPECT_EQ(job.find().culprit, "") << spec;
    for (const int who : {0, 1, 3}) {
      job.rank = {{who, 1.2}};
      EXPECT_EQ(job.find().culprit, fmt::format("rank {} (node {})", who, who / 2)) << spec;
      EXPECT_NEAR(job.find().slower, 0.2, 1e-9) << spec;
    }
  }
  Job job("tawpipe", topology::Groups({2, 2}), 4);
  job.layout.shape.micro_batch = 3;
  job.own = {3, 1, 1, 1};
  EXPECT_EQ(job.find().culprit, "");
}

TEST(Blame, OfReplicasIsAmongAllOfThem) {
  Job job("tawpipe", topology::Groups({2, 2, 2, 2}), 4, 2);
  job.noise = 0.02;
  job.rank = {{6, 1.2}};
  EXPECT_EQ(job.find().culprit, "rank 6 (node 3)");
  Job large("ddp", topology::Groups::equal(80, 20), 2);
  large.noise = 0.02;
  large.rank = {{6, 1.2}, {9, 1.1}};
  EXPECT_EQ(large.find().culprit, "rank 6 (node 1)") << "the slower one of two";
}

/// Noise of every action, and of every rank in a step; steps in which a rank is held up.
TEST(Blame, NoPartIsNamedForNoise) {
  int alarms = 0, trials = 0;
  std::mt19937 random(test::seed());
  for (const topology::Groups& nodes : nodes_of_ranks)
    for (const char* spec : specs_of(nodes))
      for (const double noise : {0.0, 0.05, 0.2}) {
        Job job(spec, nodes, nodes.ranks());
        job.noise = noise;
        job.burst = noise > 0 ? 0.1 : 0;
        const Finding found = job.find(static_cast<int>(3 + random() % 10));
        alarms += found.culprit.empty() ? 0 : 1;
        EXPECT_TRUE(noise > 0 || found.culprit.empty())
            << spec << " " << nodes.text() << ": " << found.text;
        ++trials;
      }
  RecordProperty("alarms", alarms);
  fmt::print("{} false alarms in {} trials\n", alarms, trials);
  EXPECT_LE(alarms, trials / 40);
}

/// In single actions: a step that takes place again takes as long, and shorter where it is told so.
TEST(Replay, OfMeasuredStepsIsExact) {
  for (const char* spec : specs_of(topology::Groups({2, 2}))) {
    Job job(spec, topology::Groups({2, 2}), 4);
    job.noise = 0.3;
    const StepSpans spans = job.step(test::seed());
    for (const double fold : {1, 2}) {
      const Speedups speedups = list_of(
          spans, [=](const auto& actions) { return std::vector<double>(actions.size(), fold); });
      EXPECT_NEAR(replay(job.program, spans, speedups), job.length() / fold, 1e-12);
    }
  }
}

/// Data that were there before they were asked for; messages of a lane that overlapped.
TEST(Replay, OfEagerAndOverlappingMessagesByHand) {
  const Program program = schedule::parse_program(R"(program eager
shards 2
micro_batches 2
groups 1+1
rank 0 slots h1 t1 owned 0
   0 inputs_send     send W0 h0 -> r1
   1 inputs_send     send W1 h0 -> r1
rank 1 slots w2 a1 x1 owned 1
   0 compute         F s0 m0 w1 a0 x0
   0 inputs_recv     recv W0 w0 <- r0 after compute:1
   1 inputs_recv     recv W1 w1 <- r0 after compute:1
   1 compute         F s0 m1 w0 a0 x0 after inputs_recv:1
)");
  const StepSpans spans = {
      {{0, 0, 1}, {0, 0, 3}}, {{0, 0, 4}, {0, 4, 4.5}, {0, 4, 4.75}, {4, 4.5, 8}}};
  const auto length = [&](double computing) {
    return replay(program, spans, {{1, 1}, {computing, 1, 1, computing}});
  };
  EXPECT_DOUBLE_EQ(length(1), 8);
  EXPECT_DOUBLE_EQ(length(2), 2 + 0.5 + 1.75);
  EXPECT_DOUBLE_EQ(length(8), 3 + 0.75) << "the second message goes until 3";
}
}  // namespace
}  // namespace minitaw::blame
