// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fmt/format.h>
#include "sample.hpp"

/// Writes a result file for the tests in Python: two schedules over lengths, timelines of one, a
/// failed case, sessions.
int main(int argc, char** argv) {
  using namespace minitaw;
  using namespace minitaw::record;
  if (argc != 2)
    return 2;
  std::filesystem::remove(argv[1]);  // an old file would be gone on with
  deck::Deck deck;
  deck.text = "layers = 5\n";
  Provenance provenance = collect(deck, {"minitaw", "run", "sample.toml"}, HostNames());
  const std::string each = "rank of the job";
  for (const char* name : {"kokkos", "mpi", "nccl", "cuda", "driver"})
    provenance.push_back(entry(name, "1.2"));
  provenance.insert(provenance.end(),
      {entry("libraries", "library", {"a 1", "b 2"}),
          entry("hosts", each, {"a", "a", "b"}),
          entry("devices", each, {"cpu", "cpu", "cpu"}),
          {"nodes", "1", each, std::vector<std::int64_t>{0, 0, 1}, {3}},
          entry("cores", each, {"0-3", "4-7,9", "0-1"}),
          entry("cpu", each, {"a processor", "a processor", "another"}),
          entry("adapters", each, {"mlx5_0:1,mlx5_1:1", "mlx5_0:1,mlx5_1:1", ""})});
  for (const int seq : {128, 256, 512}) {
    Recorder recorder(argv[1], provenance, sample_extensions());
    CaseResult drawn = sample_case("tawpipe", seq);
    drawn.timeline = sample_timeline();
    recorder.append(drawn);
    recorder.append(sample_case("ddp", seq, 5));
  }
  CaseResult failed;
  failed.settings = sample_case("tawpipe", 1024).settings;
  failed.status = Status::error;
  failed.reason = "out of memory";
  failed.planned_bytes = failed.counted_bytes = sample_case().planned_bytes;
  for (std::uint64_t& bytes : failed.counted_bytes)
    bytes += 100;
  Recorder(argv[1], provenance, sample_extensions()).append(failed);
  fmt::print("{}\n", argv[1]);
}
