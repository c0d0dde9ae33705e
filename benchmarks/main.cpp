#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <cstdlib>
#include <cstring>

#include "bench.hpp"
#include "kernels/library.hpp"

namespace minitaw::bench {

Sizes& sizes() {
  static Sizes chosen;
  return chosen;
}

namespace {

constexpr const char* usage = "minitaw_kernels [--tokens T] [--hidden H] [--ffn F] [--vocab V] [--heads h] "
                              "[--kv-heads k] [--benchmark_...]\n";

/// Takes "--name value" from the arguments; the rest is Google Benchmark's.
void read_sizes(int& argc, char** argv) {
  Sizes& s = sizes();
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.starts_with("--benchmark")) {
      argv[kept++] = argv[i];
      continue;
    }
    const std::int64_t value = i + 1 < argc ? std::atoll(argv[i + 1]) : 0;
    if (value < 1) {
      fmt::print(stderr, "minitaw_kernels: {} needs a size\n{}", name, usage);
      std::exit(2);
    }
    ++i;
    if (name == "--tokens") s.tokens = value;
    else if (name == "--hidden") s.hidden = value;
    else if (name == "--ffn") s.ffn = value;
    else if (name == "--vocab") s.vocab = value;
    else if (name == "--heads") s.heads = s.kv_heads = static_cast<int>(value);
    else if (name == "--kv-heads") s.kv_heads = static_cast<int>(value);
    else {
      fmt::print(stderr, "minitaw_kernels: unknown option {}\n{}", name, usage);
      std::exit(2);
    }
  }
  argc = kept;
}

void run() {
  const ExecutionSpace exec;
  kernels::prepare(exec);
  for (const auto& [name, version] : kernels::library_versions()) benchmark::AddCustomContext(name, version);
  benchmark::AddCustomContext("space", ExecutionSpace::name());
  add_limits();
  add_linear();
  add_attention();
  add_layers();
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace minitaw::bench

int main(int argc, char** argv) {
  try {
    const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
    benchmark::Initialize(&argc, argv);
    minitaw::bench::read_sizes(argc, argv);
    minitaw::bench::run();
    benchmark::Shutdown();
  } catch (const std::exception& error) {
    fmt::print(stderr, "minitaw_kernels: {}\n", error.what());
    return 2;
  }
}
