#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <fstream>
#include <set>

#include "base/error.hpp"
#include "kernels/library.hpp"
#include "kernels/types.hpp"
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

int measure(const Options& options, const std::vector<Shape>& shapes, const Kernels& kernels) {
  std::ofstream table = open_table(options);
  describe_machine();
  const Limits limits =
      measure_limits(types_of(shapes), options.triad_mib > 0 ? options.triad_mib : default_triad_mib());
  Times times;
  add_timings(limits, kernels, times);
  if (benchmark::RunSpecifiedBenchmarks() == 0)
    throw InputError(
        fmt::format("--benchmark_filter={}: no kernel has such a name", benchmark::GetBenchmarkFilter()));
  if (table.is_open()) table << markdown(limits, kernels, times);
  return 0;
}

int run(int& argc, char** argv) {
  const Options options = take_options(argc, argv);
  if (options.help) return fmt::print("{}", usage()), 0;
  const std::vector<Shape> shapes = shapes_of(options);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  kernels::prepare(kernels::ExecutionSpace());
  const Kernels kernels = kernels_of(shapes);
  if (options.verify) return verify(selected(kernels, benchmark::GetBenchmarkFilter()), stdout) == 0 ? 0 : 1;
  return measure(options, shapes, kernels);
}

}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  try {
    const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
    const int code = minitaw::bench::run(argc, argv);
    benchmark::Shutdown();
    return code;
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_kernels: {}\n", error.what());
    return 2;
  }
}
