// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fmt/format.h>
#include "record/recorder.hpp"

namespace minitaw::record {
/// A finished case whose numbers are made up but all different, so that a swapped field shows.
inline CaseResult sample_case(
    const std::string& schedule = "tawpipe", int seq = 128, int timed = 4) {
  CaseResult r;
  Case& c = r.asked;
  c.schedule = schedule;
  c.ranks = 3;
  c.groups = topology::Groups({1, 2});
  c.shape = {5, 12, 3, 1, 9, 23, seq, 2, model::Dtype::fp32, model::Recompute::block};
  c.replicas = 3;
  c.micro_batches = 6;
  c.steps = timed;
  c.warmup = 1;
  c.data = "synthetic";
  for (int step = 0; step < timed + c.warmup; ++step)
    r.losses.push_back(3.0 - 0.125 * step);
  for (int step = 0; step < timed; ++step)
    r.seconds.push_back({0.5 + step, 0.25 + step, 0.75 + step});
  r.clocks = {{100, 1784367000.25, 7}, {110.5, 1784367010.75, 17.5}};
  for (int rank = 0; rank < c.ranks; ++rank) {
    RankMemory memory;
    std::iota(memory.planned.begin(), memory.planned.end(), 1000 * (rank + 1));
    std::iota(memory.measured.begin(), memory.measured.end(), 2000 * (rank + 1));
    memory.other = 300U + rank;
    memory.process_begin = 40000U + rank;
    memory.process_peak = 50000U + rank;
    memory.device_used = 70000U + rank;
    r.memory.push_back(memory);
    r.time.push_back(
        {0.5, {0.125, 0.0625 * rank, 0.0625, 0.1875}, 0.375 - 0.0625 * rank, 0.75, 0.25 * rank});
    r.idle_ticks.push_back(rank);
  }
  r.accounted_step = (timed - 1) / 2;
  r.accounted_length = 1.25;
  for (int pair = 0; pair < 3 * 3; ++pair)
    for (const auto& [kind, name] : schedule::table_of<schedule::Traffic>) {
      const std::size_t bytes = r.bytes.size();
      r.bytes.push_back({pair / 3, pair % 3, kind, bytes, bytes});
    }
  r.attention = "portable";
  r.matmul_algorithms = "algorithm 2 of 3";
  r.transport = "mpi";
  r.bytes_source = "counted";
  r.ticks = 17;
  r.max_gradient_error = 1e-7;
  r.started = "2026-07-18T09:30:00Z";
  r.found = {{"energy_source", "made up 1.2"},
      {"energy", 600.0},
      {"energy_per_token", 0.125},
      {"slowest_rank", std::int64_t{2}},
      {"slowest_ratio", 1.08}};
  return r;
}

/// What an instrument says of rows of sample_case().
inline Remarks sample_remarks() {
  return {{"slowest", [](const std::vector<Row>& rows) {
             return fmt::format("rank 2 is slowest in {} runs", rows.size());
           }}};
}

/// A timeline of its three ranks: as made up as the rest.
inline trace::Timeline sample_timeline() {
  using namespace schedule;
  trace::Timeline t{"sample", topology::Groups({1, 2}), {}};
  t.events = {{0, Lane::compute, Kind::forward, Payload::none, 0, 2, 1, -1, -1, 0, 0.125, 0.5},
      {0, Lane::gradients_send, Kind::send, Payload::gradient, 1, 2, 1, 2, 3, 0.125, 0.25, 0.75},
      {2, Lane::gradients_recv, Kind::recv, Payload::gradient, 1, 2, 1, 0, 3, 0, 0, 0.75},
      {1,
          Lane::inputs_group,
          Kind::broadcast,
          Payload::embeddings,
          2,
          -1,
          -1,
          1,
          0,
          0.0625,
          0.375,
          1.25},
      {2, Lane::compute, Kind::update, Payload::weights, 7, 4, -1, -1, -1, 0.75, 1, 1.0625}};
  return t;
}

/// What a session knows without a job.
inline Provenance sample_session() {
  return collect({}, {"test"}, {}, {});
}
}  // namespace minitaw::record
