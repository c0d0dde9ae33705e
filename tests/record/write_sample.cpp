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
  for (const char* name : {"kokkos", "mpi", "nccl", "cuda", "driver"})
    provenance[name] = text_data("1.2");
  provenance["libraries"] = list_data({"a 1", "b 2"});
  provenance["hosts"] = list_data({"a", "a", "b"});
  provenance["devices"] = list_data({"cpu", "cpu", "cpu"});
  provenance["nodes"] = {std::vector<std::int64_t>{0, 0, 1}, {3}};
  provenance["cores"] = list_data({"0-3", "4-7,9", "0-1"});
  provenance["cpu"] = list_data({"a processor", "a processor", "another"});
  provenance["adapters"] = list_data({"mlx5_0:1,mlx5_1:1", "mlx5_0:1,mlx5_1:1", ""});
  for (const int seq : {128, 256, 512}) {
    Recorder recorder(argv[1], provenance, sample_remarks());
    CaseResult drawn = sample_case("tawpipe", seq);
    drawn.timeline = sample_timeline();
    recorder.append(drawn);
    recorder.append(sample_case("ddp", seq, 5));
  }
  CaseResult failed;
  failed.settings = sample_case("tawpipe", 1024).settings;
  failed.status = Status::error;
  failed.reason = "out of memory";
  failed.bytes = sample_case().bytes;
  for (LinkBytes& link : failed.bytes)
    link.counted += 100;
  Recorder(argv[1], provenance, sample_remarks()).append(failed);
  fmt::print("{}\n", argv[1]);
}
