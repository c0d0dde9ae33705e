// SPDX-License-Identifier: BSD-3-Clause
// The serial step by the engine and by a plain loop of the same calls, in pairs.
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "case/result.hpp"
#include "cli/cli11.hpp"
#include "deck/deck.hpp"
#include "engine/queue.hpp"
#include "harness/check.hpp"
#include "schedule/validate.hpp"

namespace minitaw::bench {
namespace {
using schedule::SlotClass;
using Loss = Kokkos::View<double, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;

/// What the last step has left in an arena.
double loss_in(const engine::Arena& arena) {
  double loss = 0;
  Kokkos::deep_copy(loss, Loss(arena.loss()));
  return loss;
}

/// The serial step as a plain loop of calls of the model, written by hand: the same kernels in the
/// same order, in memory laid out alike. No program is interpreted, there are no lanes, threads,
/// clocks or watchdog. What engine::Runtime takes longer is what those cost.
class Baseline {
public:
  /// `c` has the schedule serial.
  explicit Baseline(const Case& c)
      : case_(c),
        program_(schedule::build_valid(request_of(c))),
        layout_(model::make_layout(c.shape, schedule::cut_of(program_))),
        arena_(schedule::memory(program_, layout_)[0]),
        exec_(engine::lane_space(schedule::Lane::compute)),
        model_(exec_,
            layout_,
            engine::loss_scale(c),
            arena_.workspace(),
            kernels::parse_attention(c.attention)),
        tokens_(c.shape, c.data, c.seed),
        hidden_state_(arena_.slot({schedule::SlotClass::hidden, 0})),
        saved_(static_cast<std::size_t>(program_.shards)) {
    for (const schedule::Action& a : program_.ranks[0].actions)
      if (a.kind == schedule::Kind::forward && a.micro_batch == 0)
        saved_[static_cast<std::size_t>(a.shard)] = arena_.slot(a[schedule::Operand::saved]);
    for (int m = 0; m < c.micro_batches; ++m)
      batches_.emplace_back(c.shape);
    engine::initialise(program_, 0, layout_, arena_, c.seed);
  }

  /// Readies the tokens of the next step, outside of its time.
  void prepare() {
    for (int m = 0; m < case_.micro_batches; ++m)
      batches_[static_cast<std::size_t>(m)].fill(tokens_, steps_, first_sequence(case_, m));
    Kokkos::deep_copy(Loss(arena_.loss()), 0.0);
  }

  /// Returns when it is complete.
  void step() {
    ++steps_;
    for (const model::MicroBatch& batch : batches_)
      micro_batch(batch, &batch != batches_.data());
    const model::AdamW adamw = engine::adamw_of(case_);
    for (int s = 0; s < program_.shards; ++s)
      model_.update(s,
          {},
          {slot(SlotClass::owned, s), slot(SlotClass::accumulator, s), arena_.optimiser(s)},
          adamw,
          steps_);
    model_.update_embeddings(0,
        {slot(SlotClass::embeddings),
            slot(SlotClass::embeddings_accumulator),
            arena_.optimiser(program_.shards)},
        adamw,
        steps_);
    exec_.fence("minitaw::bench::Baseline");
  }

  [[nodiscard]] const engine::Arena& arena() const { return arena_; }

private:
  [[nodiscard]] model::Buffer slot(SlotClass cls, int index = 0) const {
    return arena_.slot({cls, static_cast<std::int16_t>(index)});
  }

  void micro_batch(const model::MicroBatch& batch, bool accumulate) {
    const model::Operands embeddings{.weights = slot(SlotClass::embeddings),
        .hidden = hidden_state_,
        .gradient = slot(SlotClass::embeddings_accumulator),
        .accumulate = accumulate};
    const auto of_shard = [&](int s) {
      return model::Operands{.weights = slot(SlotClass::owned, s),
          .saved = saved_[static_cast<std::size_t>(s)],
          .hidden = hidden_state_,
          .gradient = slot(SlotClass::accumulator, s),
          .accumulate = accumulate};
    };
    model_.embed(embeddings, batch);
    for (int s = 0; s < program_.shards; ++s)
      model_.forward(s, of_shard(s));
    model_.loss(embeddings, arena_.loss(), batch);
    for (int s = program_.shards - 1; s >= 0; --s)
      model_.backward(s, of_shard(s));
    model_.embed_backward(embeddings, batch);
  }

  Case case_;
  schedule::Program program_;  ///< for the sizes of the memory only
  model::Layout layout_;
  engine::Arena arena_;
  model::ExecutionSpace exec_;
  model::Model model_;
  model::TokenSource tokens_;
  std::vector<model::MicroBatch> batches_;
  model::Buffer hidden_state_;
  std::vector<model::Buffer>
      saved_;  ///< by shard: what the program's first micro-batch saves for the backward pass
  int steps_ = 0;
};

template <class Steps>
double seconds(Steps& steps) {
  const auto begin = std::chrono::steady_clock::now();
  (void)steps.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Executes warm-up and `pairs` pairs of steps, in each pair the one after the other, who is first
/// changing from pair to pair; a row of the table. Throws if a loss is not equal to the bit.
std::string row_of(const Case& c, int pairs) {
  engine::Runtime runtime(c, 0);
  runtime.connect();
  Baseline baseline(c);
  std::vector<double> engine_s, baseline_s, overheads;  // overheads: shares of the baseline's time
  for (int p = -c.warmup; p < pairs; ++p) {
    runtime.prepare();
    baseline.prepare();
    double ours = 0;
    if (p % 2 == 0)
      ours = seconds(runtime);
    const double plain = seconds(baseline);
    if (p % 2 != 0)
      ours = seconds(runtime);
    if (const double loss = loss_in(runtime.arena()), other = loss_in(baseline.arena());
        loss != other)
      throw std::runtime_error(fmt::format(
          "step {}: the engine's loss is {}, its baseline's {}; they must be equal to the bit",
          p + c.warmup + 1,
          loss,
          other));
    if (p < 0)
      continue;
    engine_s.push_back(ours);
    baseline_s.push_back(plain);
    overheads.push_back(ours / plain - 1);
  }
  std::ranges::sort(overheads);
  const std::size_t actions = runtime.program().ranks[0].actions.size();
  const double plain = median(baseline_s), share = quantile(overheads, 0.5);
  return fmt::format(
      "| {} | {} | {} | {} | {} | {} | {:.3f} | {:.3f} | {:+.2f} % | {:+.2f} to {:+.2f} % | "
      "{:+.2f} % | {:.2f} |\n",
      c.shape.layers,
      c.shape.hidden,
      c.shape.seq,
      c.micro_batches,
      actions,
      engine_s.size(),
      1e3 * median(engine_s),
      1e3 * plain,
      100 * share,
      100 * quantile(overheads, 0.25),
      100 * quantile(overheads, 0.75),
      100 * (std::ranges::min(engine_s) / std::ranges::min(baseline_s) - 1),
      1e6 * share * plain / static_cast<double>(actions));
}

void run(int argc, char** argv) {
  std::string deck;
  std::vector<std::string> overrides;
  int pairs = 21;
  CLI::App app("The serial step by the engine and by a plain loop of the same calls, in pairs.",
      "minitaw_baseline");
  app.add_option("DECK", deck, "TOML file of the cases")->required();
  cli::add_overrides(app, overrides);
  app.add_option("--pairs", pairs, "steps of each, one after the other")
      ->check(CLI::Range(1, std::numeric_limits<int>::max()))
      ->capture_default_str();
  if (const std::string help = cli::parse(app, argc, argv); !help.empty())
    return fmt::print("{}", help);
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
  std::string text = "| L | H | S | M | actions | pairs | engine, ms | baseline, ms | overhead | "
                     "half of the pairs | of the best | us per action |\n"
                     "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  const deck::Deck read = deck::read_deck(deck, overrides, {1, {1}, false});
  for (const std::string& sentence : read.unused)
    fmt::print(stderr, "# {}\n", sentence);
  for (const Case& c : read.cases)
    text += row_of(harness::serial_case(c), pairs);
  fmt::print("{}", text);
}
}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  try {
    minitaw::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_baseline: {}\n", error.what());
    return dynamic_cast<const minitaw::InputError*>(&error) != nullptr ? 2 : 1;
  }
}
