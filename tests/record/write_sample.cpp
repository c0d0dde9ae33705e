// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fmt/format.h>
#include "sample.hpp"

namespace {
using namespace minitaw;
using namespace minitaw::record;

/// Cases of many ranks, each of which sends three kinds to six others.
void write_large(const std::string& file, int ranks, int cases) {
  using enum schedule::Traffic;
  Recorder recorder(file, sample_session());
  for (int number = 0; number < cases; ++number) {
    CaseResult r = sample_case("ddp", 128 + number);
    r.asked.ranks = ranks;
    r.asked.groups = topology::Groups::equal(ranks, ranks / 8);
    r.seconds.assign(10, std::vector<double>(ranks, 0.5 + number));
    r.memory.resize(ranks, r.memory[0]);
    r.time.resize(ranks, r.time[0]);
    r.idle_ticks.resize(ranks, 1);
    r.bytes.clear();
    for (int from = 0; from < ranks; ++from)
      for (int peer = 1; peer <= 6; ++peer)
        for (const auto kind : {weights, gradients, activations})
          r.bytes.push_back({from, (from + peer) % ranks, kind, 1000, 1000});
    recorder.append(r);
  }
}
}  // namespace

/// Writes a result file for the tests in Python: two schedules over lengths, timelines of one, a
/// failed case, sessions. With RANKS and CASES behind its name, a large one.
int main(int argc, char** argv) {
  if (argc != 2 && argc != 4)
    return 2;
  std::filesystem::remove(argv[1]);  // an old file would be gone on with
  if (argc == 4) {
    write_large(argv[1], std::stoi(argv[2]), std::stoi(argv[3]));
    return 0;
  }
  deck::Deck deck;
  deck.text = "layers = 5\n";
  const topology::RankPlace first{.cores = {0, 1, 2, 9},
      .unit = "cpu",
      .site = {.cpu = "a processor", .adapters = "mlx5_0:1,mlx5_1:1"}};
  topology::RankPlace last = first;
  last.node = 1;
  Provenance provenance =
      collect(deck, {"minitaw", "run", "sample.toml"}, {first, first, last}, HostNames());
  for (const char* name : {"kokkos", "mpi", "nccl", "driver"})
    provenance[name] = text_data("1.2");
  provenance["libraries"] = list_data({"a 1", "b 2"});
  for (const int seq : {128, 256, 512}) {
    Recorder recorder(argv[1], provenance, sample_remarks());
    CaseResult drawn = sample_case("tawpipe", seq);
    drawn.timeline = sample_timeline();
    recorder.append(drawn);
    recorder.append(sample_case("ddp", seq, 5));
    recorder.stop("stopped by SIGTERM");
  }
  CaseResult failed;
  failed.asked = sample_case("tawpipe", 1024).asked;
  failed.status = Status::error;
  failed.reason = "out of memory";
  failed.bytes = {{0, 1, schedule::Traffic::context, 100, 101}};
  Recorder(argv[1], provenance, sample_remarks()).append(failed);
  fmt::print("{}\n", argv[1]);
}
