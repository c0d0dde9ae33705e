#include "overhead.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "comm/transport.hpp"
#include "record/quantile.hpp"
#include "baseline.hpp"

namespace minitaw::bench {
namespace {

using record::median;
using record::quantile;

engine::NamedTransport nobody(const schedule::Program&, model::Buffer) {
  return {std::make_unique<comm::SoloTransport>(), "none"};
}

template <class Work>
double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Engine and baseline, step by step.
class Pair {
public:
  explicit Pair(const deck::Case& c) : session_(c, 0, nobody, {}), baseline_(c) {}

  /// The next step of both: seconds of the engine, then of the baseline.
  std::pair<double, double> step(bool engine_first) {
    session_.prepare();
    baseline_.prepare();
    double engine = 0;
    if (engine_first) engine = seconds([&] { session_.execute(); });
    const double baseline = seconds([&] { baseline_.step(); });
    if (!engine_first) engine = seconds([&] { session_.execute(); });
    require_equal();
    return {engine, baseline};
  }
  [[nodiscard]] std::size_t actions() const { return session_.program().ranks[0].actions.size(); }

private:
  void require_equal() const {
    const double engine = loss_in(session_.arena()), baseline = loss_in(baseline_.arena());
    if (engine == baseline) return;
    throw Differ(fmt::format("step {}: the engine's loss is {}, its baseline's {}; they must be equal to the bit",
                             session_.steps(), engine, baseline));
  }

  engine::Session session_;
  Baseline baseline_;
};

std::string row(const Overhead& o) {
  const std::vector<double> all = shares(o);
  const double engine = median(o.engine_s), baseline = median(o.twin_s), share = quantile(all, 0.5);
  const model::Shape& shape = o.settings.shape;
  return fmt::format(
      "| {} | {} | {} | {} | {} | {} | {:.3f} | {:.3f} | {:+.2f} % | {:+.2f} to {:+.2f} % | "
      "{:+.2f} % | {:.2f} |\n",
      shape.layers, shape.hidden, shape.seq, o.settings.micro_batches, o.actions, o.engine_s.size(),
      1e3 * engine, 1e3 * baseline, 100 * share, 100 * quantile(all, 0.25), 100 * quantile(all, 0.75),
      100 * (*std::ranges::min_element(o.engine_s) / *std::ranges::min_element(o.twin_s) - 1),
      1e6 * share * baseline / static_cast<double>(o.actions));
}

}  // namespace

Overhead measure_overhead(const deck::Case& c, int pairs) {
  Pair pair(c);
  Overhead result{c, pair.actions(), {}, {}};
  for (int p = -c.warmup; p < pairs; ++p) {
    const auto [engine, baseline] = pair.step(p % 2 == 0);
    if (p < 0) continue;
    result.engine_s.push_back(engine);
    result.twin_s.push_back(baseline);
  }
  return result;
}

std::vector<double> shares(const Overhead& overhead) {
  std::vector<double> all;
  for (std::size_t p = 0; p < overhead.engine_s.size(); ++p)
    all.push_back(overhead.engine_s[p] / overhead.twin_s[p] - 1);
  std::ranges::sort(all);
  return all;
}

std::string table(const std::vector<Overhead>& all) {
  std::string text =
      "| L | H | S | M | actions | pairs | engine, ms | baseline, ms | overhead | half of the pairs | of the best | us per action |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Overhead& o : all) text += row(o);
  return text;
}

}  // namespace minitaw::bench
