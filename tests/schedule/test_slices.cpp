// SPDX-License-Identifier: BSD-3-Clause
// Pipelines that pass sequences in slices: what they wait for, keep and send.
#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <numeric>
#include "model/plan.hpp"
#include "schedule/account.hpp"
#include "schedule/parse.hpp"
#include "schedule/shapes.hpp"
#include "schedule/simulate.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
Request request_for(const std::string& spec, int stages, int micro_batches, int layers) {
  return {parse_spec(spec), topology::Groups({stages}), micro_batches, layers};
}

std::string with_slices(const std::string& name, int k, const char* more = "") {
  return name + ":slices=" + std::to_string(k) + more;
}

// ---- The order ----

/// Every rank's visits as text: "F0.1", "BW2.0"; micro-batch and slice.
std::vector<std::string> visits_of(const Program& program, int rank) {
  std::vector<std::string> all;
  for (const Action& a : program.ranks[rank].actions)
    if (is_visit(a.kind))
      all.push_back(fmt::format("{}{}.{}",
          name_of(a.kind),
          a.micro_batch / program.slices,
          slice_of(program, a.micro_batch)));
  return all;
}

/// Written by hand from section 3 of arXiv 2406.03488: two stages, two micro-batches of three
/// slices.
TEST(Slices, GoForwardInOrderAndComeBackInReverse) {
  const Program program = build(request_for("1f1b:slices=3", 2, 2, 2));
  using Words = std::vector<std::string>;
  EXPECT_EQ(visits_of(program, 0),
      (Words{"F0.0",
          "F0.1",
          "F0.2",
          "F1.0",
          "BW0.2",
          "F1.1",
          "BW0.1",
          "F1.2",
          "BW0.0",
          "BW1.2",
          "BW1.1",
          "BW1.0"}));
  EXPECT_EQ(visits_of(program, 1),
      (Words{"F0.0",
          "F0.1",
          "F0.2",
          "BW0.2",
          "F1.0",
          "BW0.1",
          "F1.1",
          "BW0.0",
          "F1.2",
          "BW1.2",
          "BW1.1",
          "BW1.0"}));
}

TEST(Slices, OfOneAreTheSchedule) {
  for (const char* name : {"1f1b", "zb1"})
    EXPECT_TRUE(build(request_for(name, 3, 4, 5)) ==
                build(request_for(std::string(name) + ":slices=1", 3, 4, 5)));
}

TEST(Slices, GiveValidProgramsThatAreWhatTheirTextSays) {
  int seen = 0;
  for (const char* name : {"1f1b", "zb1"})
    for (const int stages : {1, 2, 3, 5})
      for (const int k : {2, 3, 8})
        for (const int context : {1, 2, 3})
          for (const int replicas : {1, 2}) {
            const int ranks = stages * context;
            Request request{parse_spec(with_slices(name, k, seen % 2 ? ":cut=even" : "")),
                topology::Groups::equal(ranks * replicas, stages * replicas),
                replicas * (1 + seen % 4),
                2 * stages - 1};
            request.replicas = replicas;
            request.clips = seen % 3 == 0;
            if (context > 1) {
              request = shapes::shared(request, context);
              request.key_parts = 1 + seen % 2;
            }
            const Program program = build(request);
            const auto violation = validate(program);
            ASSERT_FALSE(violation) << shapes::name_of(request) << ": " << violation->message;
            ASSERT_TRUE(parse_program(to_text(program)) == program) << shapes::name_of(request);
            ++seen;
          }
  EXPECT_EQ(seen, 144);
}

TEST(Slices, AreRefusedWithChunks) {
  const std::string refusal =
      test::refusal_of([] { check(request_for("1f1b:slices=2:chunks=2", 2, 2, 4)); });
  EXPECT_THAT(refusal, test::Says({"schedule", "slices and chunks", "one of them"}));
}

// ---- What they wait for ----

/// Durations of the visits of a slice.
struct Times {
  double f, b, w;

  [[nodiscard]] double of(Kind kind) const {
    switch (kind) {
    case Kind::forward: return f;
    case Kind::backward: return b + w;
    case Kind::backward_input: return b;
    case Kind::backward_weight: return w;
    default: return 0;
    }
  }
};

/// Time in which a rank does nothing between its first visit and its last, and when that ends.
std::pair<double, double> bubble_of(
    const Program& program, const std::vector<std::vector<Span>>& spans, int rank) {
  double begin = 1e300, end = 0, busy = 0;
  for (std::size_t i = 0; i < spans[rank].size(); ++i)
    if (const Span& span = spans[rank][i];
        span.end > span.begin && is_visit(program.ranks[rank].actions[i].kind)) {
      begin = std::min(begin, span.begin);
      end = std::max(end, span.end);
      busy += span.end - span.begin;
    }
  return {end - begin - busy, end};
}

/// (p - 1 - i) (T_F + T_BW) / k at stage i, where T_F + T_BW is of a micro-batch and a slice takes
/// a k-th; (p - 1) of it for the step. ZB-H1 has T_F + T_B - T_W instead.
TEST(Slices, DivideTheBubbleByTheirNumber) {
  for (const auto& [name, halves] : {std::pair{"1f1b", false}, {"zb1", true}})
    for (const int p : {2, 4, 7})
      for (const int k : {1, 2, 3, 8})
        for (const int micro_batches : {p, 2 * p + 3}) {
          SCOPED_TRACE(fmt::format("{} p {} k {} M {}", name, p, k, micro_batches));
          const double f = 1.0 / k, b = 1.25 / k, w = 0.75 / k;
          const Times of_slice{f, b, w};
          const Program program = build(request_for(with_slices(name, k), p, micro_batches, 2 * p));
          const auto spans =
              simulate(program, [&](int, const Action& a) { return of_slice.of(a.kind); });
          const double step = halves ? f + b - w : f + b + w;
          double last = 0;
          for (int i = 0; i < p; ++i) {
            const auto [bubble, end] = bubble_of(program, spans, i);
            EXPECT_NEAR(bubble, (p - 1 - i) * step, 1e-9) << i;
            last = std::max(last, end);
          }
          EXPECT_NEAR(last, (p - 1) * step + 3.0 * micro_batches, 1e-9);
        }
}

// ---- What they keep ----

int slots_of(const Program& program, int rank, SlotClass cls) {
  return program.ranks[rank].slots[index_of(cls)];
}

/// (p - i - 1 + k) / k micro-batches in flight at stage i. Keys stay until the first slice has come
/// back, when p - i - 2 + 2 k slices have gone forward; one gradient at a time.
TEST(Slices, KeepAFractionOfTheActivations) {
  for (const int p : {2, 4, 7})
    for (const int k : {2, 3, 8}) {
      const Program plain = build(request_for(with_slices("1f1b", k), p, 3 * p, p)),
                    halves = build(request_for(with_slices("zb1", k), p, 3 * p, p));
      for (int i = 0; i < p; ++i) {
        SCOPED_TRACE(fmt::format("p {} k {} stage {}", p, k, i));
        EXPECT_EQ(slots_of(plain, i, SlotClass::saved), p - i - 1 + k);
        EXPECT_EQ(slots_of(halves, i, SlotClass::saved), p - 1 + k);
        EXPECT_EQ(slots_of(plain, i, SlotClass::prefix), 2 + (p - i - 2 + k - 1) / k);
        EXPECT_EQ(slots_of(plain, i, SlotClass::prefix_gradient), 1);
        EXPECT_EQ(slots_of(halves, i, SlotClass::prefix_gradient), 1);
      }
    }
}

/// Grouped heads.
model::Shape shape_of(int layers, std::int64_t seq, int k, bool even) {
  model::Shape shape{layers, 32, 4, 2, 23, 37, seq, 3, model::Dtype::bf16};
  shape.slices = k;
  shape.even_slices = even;
  shape.fp32_key_gradients = true;
  return shape;
}

std::size_t saved_bytes(const Footprint& rank) {
  std::size_t bytes = 0;
  for (const SlotSize& slot : rank.slots)
    if (slot.slot.cls == SlotClass::saved)
      bytes += slot.bytes;
  return bytes;
}

/// 64 tokens a slice, B = 3, H = 32, k d = 16, bf16: multiples of 256 bytes.
TEST(Slices, TakeTheMemoryThatFormulasSay) {
  const int p = 4, k = 4;
  const model::Shape shape = shape_of(2 * p, 64 * k, k, true);
  const Program program = build(request_for(with_slices("1f1b", k, ":cut=even"), p, 2 * p, 2 * p));
  const std::vector<Footprint> ranks = memory(program, model::make_layout(shape, cut_of(program)));
  for (int i = 0; i < p; ++i) {
    EXPECT_EQ(saved_bytes(ranks[i]), (p - i - 1 + k) * 2 * 64U * 3 * 32 * 2) << i;
    const std::size_t numbers = 2 * 64U * k * 3 * 32;  // of the keys of two blocks
    EXPECT_EQ(ranks[i].by_kind[index_of(Memory::context)], numbers * (2 * (i < 2 ? 3 : 2) + 4))
        << i;
    // of each slice at both ends: 192 inputs, targets and positions, where up to 37 tokens begin
    EXPECT_EQ(ranks[i].by_kind[index_of(Memory::tokens)],
        i % (p - 1) == 0 ? 2U * p * k * 4 * (3 * 192 + 37 + 1) : 0U);
  }
}

/// Most bytes of saved activations that are alive at once.
std::size_t most_alive(const Program& program, int rank, const model::Layout& layout) {
  std::size_t alive = 0, most = 0;
  for (const Action& a : program.ranks[rank].actions) {
    if (!is_visit(a.kind))
      continue;
    const model::Shape& slice = layout.shape_of(slice_of(program, a.micro_batch));
    const std::size_t bytes = layout.shards[a.shard].layers * model::plan_saved(slice).bytes;
    if (a.kind == Kind::forward)
      most = std::max(most, alive += bytes);
    if (a.kind == Kind::backward || a.kind == Kind::backward_weight)
      alive -= bytes;
  }
  return most;
}

/// Slices of equal cost differ in length: a long one may find only the slot of a short one free,
/// which grows. Up to 28 % of what is alive.
TEST(Slices, OfDifferentLengthShareSlots) {
  for (const char* name : {"1f1b", "zb1"})
    for (const int p : {2, 4, 8})
      for (const int k : {2, 4, 8}) {
        const model::Shape shape = shape_of(p, 1 << 14, k, false);
        const Program program = build(request_for(with_slices(name, k), p, 3 * p, p));
        const model::Layout layout = model::make_layout(shape, cut_of(program));
        const std::vector<Footprint> ranks = memory(program, layout);
        for (int i = 0; i < p; ++i) {
          const std::size_t least = most_alive(program, i, layout);
          EXPECT_GE(saved_bytes(ranks[i]), least);
          EXPECT_LE(static_cast<double>(saved_bytes(ranks[i])), 1.3 * static_cast<double>(least))
              << name << " p " << p << " k " << k << " stage " << i;
        }
      }
}

// ---- What they send, and what they cost ----

/// Hidden states are as many as without slices, in k times as many messages.
TEST(Slices, SendTheBytesOfThePipeline) {
  for (const int k : {2, 3, 8}) {
    const int p = 3, micro_batches = 4, layers = 5;
    const model::Shape whole = shape_of(layers, 70, 1, false),
                       shape = shape_of(layers, 70, k, false);
    const Program plain = build(request_for("1f1b", p, micro_batches, layers)),
                  sliced = build(request_for(with_slices("1f1b", k), p, micro_batches, layers));
    const ByteMatrix matrix = bytes(sliced, model::make_layout(shape, cut_of(sliced)));
    EXPECT_EQ(matrix.cells(), bytes(plain, model::make_layout(whole, cut_of(plain))).cells());
    EXPECT_EQ(matrix.at(0, 1, Traffic::activations), 70U * 3 * 32 * 2 * micro_batches);
    const auto sends = [](const Program& program) {
      return std::ranges::count(program.ranks[1].actions, Kind::send, &Action::kind);
    };
    EXPECT_EQ(sends(plain), 2 * micro_batches);
    EXPECT_EQ(sends(sliced), 2 * micro_batches * k);
  }
}

/// (n - 1) T 2 k d (e + g) bytes a rank, block and micro-batch: keys stay for the backward visits.
TEST(Slices, GatherKeysOnceWhereRanksShareThem) {
  for (const int n : {2, 3}) {
    const int layers = 2, micro_batches = 3;
    model::Shape shape = shape_of(layers, 72, 3, false);
    shape.context = {0, n};
    Request request = request_for("zb1:slices=3", 2 * n, micro_batches, layers);
    request.groups = topology::Groups::equal(2 * n, 2);
    request.context = n;
    request.costs = model::block_costs(shape);
    const Program program = build_valid(request);
    const ByteMatrix matrix = bytes(program, model::make_layout(shape, cut_of(program)));
    const std::uint64_t tokens = 72 * 3 / n;
    EXPECT_EQ(matrix.inside(program.groups, Traffic::context),
        layers * micro_batches * n * (n - 1) * tokens * 32 * (2 + 4))
        << n;
    EXPECT_EQ(matrix.between(program.groups, Traffic::context), 0U);
  }
}

TEST(Slices, CostTogetherWhatTheirMicroBatchDoes) {
  for (const int k : {2, 3, 8})
    for (const model::Recompute recompute : {model::Recompute::block, model::Recompute::none}) {
      model::Shape whole = shape_of(1, 70, 1, false), shape = shape_of(1, 70, k, false);
      whole.recompute = shape.recompute = recompute;
      const model::Layout of_whole = model::make_layout(whole, {}),
                          layout = model::make_layout(shape, {});
      for (const Kind kind : {Kind::forward,
               Kind::backward,
               Kind::backward_input,
               Kind::backward_weight,
               Kind::loss}) {
        Action a{.kind = kind, .shard = 0, .micro_batch = 0};
        double sum = 0;
        for (a.micro_batch = 0; a.micro_batch < k; ++a.micro_batch)
          sum += flops(a, layout);
        EXPECT_NEAR(sum / flops(a, of_whole), 1, 1e-12) << name_of(kind);
      }
    }
}
}  // namespace
}  // namespace minitaw::schedule
