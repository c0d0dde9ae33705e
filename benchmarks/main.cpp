#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <fstream>
#include <set>

#include "base/error.hpp"
#include "kernels/kernels.hpp"
#include "limits.hpp"
#include "options.hpp"
#include "table.hpp"
#include "timing.hpp"
#include "verify.hpp"

namespace minitaw::bench {

namespace {

/// Words of Google Benchmark go to it, all others are ours.
Options take_options(int& argc, char** argv) {
  std::vector<std::string> own;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--benchmark_")) argv[kept++] = argv[i];
    else own.emplace_back(argv[i]);
  }
  argc = kept;
  return read_options(own);
}

void describe_machine() {
  for (const auto& [name, version] : kernels::library_versions()) benchmark::AddCustomContext(name, version);
  benchmark::AddCustomContext("space", kernels::ExecutionSpace::name());
}

std::set<model::Dtype> types_of(const std::vector<Shape>& shapes) {
  std::set<model::Dtype> types;
  for (const Shape& shape : shapes) types.insert(shape.dtype);
  return types;
}

/// Opened before anything is measured: a name that cannot be written costs no time.
std::ofstream open_table(const Options& options) {
  std::ofstream file;
  if (options.markdown.empty()) return file;
  file.open(options.markdown);
  if (!file) throw InputError(fmt::format("--markdown {}: cannot be written", options.markdown));
  return file;
}

/// Limits that another program has shared are too low, and shares of them too high.
void warn_of_drift(const Limits& before, const Limits& after) {
  if (const double change = drift(before, after); change > 0.1)
    fmt::print(
        stderr,
        "minitaw_kernels: the limits, taken again at the end, differ by {:.0f} %: something else uses this "
        "machine, and no share of a limit is to be trusted\n",
        100 * change);
}

/// A filter that selects nothing is found out before the limits take their time.
void require_selection(Kernels named) {
  for (const char* limit : {"limit/triad", "limit/matmul/fp32", "limit/matmul/bf16"}) {
    Kernel& entry = named.emplace_back();
    entry.label = limit;
  }
  (void)selected(named, benchmark::GetBenchmarkFilter());
}

int measure(const Options& options, const std::vector<Shape>& shapes, const Kernels& kernels) {
  require_selection(kernels);
  kernels::choose_by_time(kernels::ExecutionSpace(), true);  // as training steps do
  std::ofstream table = open_table(options);
  describe_machine();
  const std::int64_t triad_mib = options.triad_mib > 0 ? options.triad_mib : default_triad_mib();
  Limits before = measure_limits(types_of(shapes), triad_mib);
  before.small_triads = measure_small_triads(triad_mib);
  Times times;
  add_timings(before, kernels, times);
  benchmark::RunSpecifiedBenchmarks();
  if (times.empty()) return 0;  // only the limits were asked for
  const Limits after = measure_limits(types_of(shapes), triad_mib);
  warn_of_drift(before, after);
  if (table.is_open()) table << markdown(best_of(before, after), kernels, times);
  return 0;
}

int run(const Options& options, const std::vector<Shape>& shapes) {
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
  kernels::require_one_layout();
  kernels::prepare(kernels::ExecutionSpace());
  const Kernels kernels = kernels_of(shapes);
  if (options.verify) return verify(selected(kernels, benchmark::GetBenchmarkFilter()), stdout) == 0 ? 0 : 1;
  return measure(options, shapes, kernels);
}

/// What can be said without a device comes first.
int start(int argc, char** argv) {
  const Options options = take_options(argc, argv);
  if (!options.help.empty()) return fmt::print("{}", options.help), 0;
  const std::vector<Shape> shapes = shapes_of(options);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const int code = run(options, shapes);
  benchmark::Shutdown();
  return code;
}

}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  try {
    return minitaw::bench::start(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_kernels: {}\n", error.what());
    return 2;
  }
}
