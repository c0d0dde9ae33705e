// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/layout.hpp"

/// What the kernel benchmarks do without kernels: command line, shapes, verdicts. Without Kokkos:
/// kernels come as functions.
namespace minitaw::bench {
/// What the command line asks for. Sizes that are not given come from the deck, or else from
/// default_shape().
struct Options {
  std::string deck;                    ///< empty: one shape
  std::vector<std::string> overrides;  ///< "key=value", as for `minitaw run --set`
  std::optional<std::int64_t> tokens, hidden, ffn, vocab, heads, kv_heads;
  std::optional<model::Dtype> dtype;
  std::int64_t triad_mib = 0;  ///< of each array; 0: from the size of the last cache
  std::string markdown;        ///< empty: no table
  bool verify = false;
  std::string help;  ///< what to print instead of all that, if it was asked for
};

/// Throws InputError for an option that does not exist, or a value that is missing or makes no
/// sense.
[[nodiscard]] Options read_options(const std::vector<std::string>& words);

/// A model of one block and the micro-batch that runs through it: what the shapes of all kernels
/// follow from.
using Shape = model::Shape;

/// Those of the deck's cases, or else of the sizes given, each once. Throws InputError for a deck
/// that cannot be read and for sizes that cannot be computed.
[[nodiscard]] std::vector<Shape> shapes_of(const Options& options);

/// Fewest FLOPs and bytes of one call: every input read once, every output written once, what it
/// adds to both. An exponential, a root and a division are one FLOP each.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

/// A kernel with memory to work on, which each of its functions owns.
struct Problem {
  std::function<void()> reset;    ///< inputs as given, outputs full of what is not a number
  std::function<void()> run;      ///< one call, asynchronous
  std::function<double()> error;  ///< after reset and one run: see Comparison; waits for the run
};

/// A kernel at one shape.
struct Kernel {
  std::string name;   ///< "linear/wqkv/fp32/forward"
  std::string shape;  ///< "T=512 in=512 out=1536": what the cost depends on
  model::Dtype dtype = model::Dtype::fp32;
  Cost cost;
  double tolerance = 0;             ///< largest error that is right
  std::function<Problem()> make{};  ///< allocates and fills
  std::string label{};              ///< name, followed by the shape where a name has several
};

using Kernels = std::vector<Kernel>;

/// Each kernel once, although shapes share it, and labelled.
[[nodiscard]] Kernels distinct(Kernels all);

/// Those whose names Google Benchmark's filter selects. Throws InputError if it is no regular
/// expression or selects none.
[[nodiscard]] Kernels selected(const Kernels& kernels, const std::string& filter);

/// Runs each kernel once on poisoned outputs and prints a line with its error and the largest one
/// that is right. Returns how many are beyond it, and says which at the end.
[[nodiscard]] int verify(const Kernels& kernels, std::FILE* out);

/// Up to `most` of the numbers 0 .. count - 1, ascending: the first, the last, and others anywhere
/// between, so that tiles and vectors are met at odd places.
inline std::vector<std::int64_t> samples(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> chosen;
  if (count <= most)
    most = count;
  for (std::int64_t i = 0; i < most; ++i) {
    const std::int64_t begin = count * i / most, end = count * (i + 1) / most;  // one of each part
    const std::int64_t inside = begin + (7919 * (i + 1) + 104'729) % (end - begin);
    chosen.push_back(i == 0 ? 0 : (i == most - 1 ? count - 1 : inside));
  }
  return chosen;
}

/// Largest deviation of any element, as a share of its own size and the root mean square of all
/// together: one wrong element among thousands counts in full, and the rounding of a large one does
/// not count as more.
class Comparison {
public:
  void add(double found, double expected) { pairs_.push_back({found, expected}); }

  void add(std::span<const double> found, std::span<const double> expected) {
    for (std::size_t i = 0; i < expected.size(); ++i)
      add(found[i], expected[i]);
  }

  /// Infinite if anything is not a number, or nothing was compared.
  [[nodiscard]] double error() const {
    double squares = 0, largest = pairs_.empty() ? infinite : 0;
    for (const auto& [found, expected] : pairs_)
      squares += expected * expected;
    const double mean = std::sqrt(squares / static_cast<double>(pairs_.size()));
    for (const auto& [found, expected] : pairs_) {
      const double off = std::abs(found - expected);
      if (off != 0)
        largest =
            std::max(largest, std::isfinite(off) ? off / (mean + std::abs(expected)) : infinite);
    }
    return largest;
  }

private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::pair<double, double>> pairs_;
};
}  // namespace minitaw::bench
