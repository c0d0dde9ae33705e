#include "engine/collect.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/mpi/size.hpp"
#include "engine/account.hpp"
#include "topology/devices.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;
using comm::mpi::size_of;
using record::CaseResult;

template <class T, std::size_t N>
std::vector<std::array<T, N>> gather_rows(const std::array<T, N>& mine, MPI_Comm comm) {
  std::vector<std::array<T, N>> all(size_of(comm));
  check(MPI_Gather(mine.data(), sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, 0, comm),
        "MPI_Gather");
  return all;
}

void collect_samples(const TimedSteps& steps, MPI_Comm comm, CaseResult& result) {
  for (const double mine : steps.seconds()) {
    std::vector<double> seconds(size_of(comm));
    check(MPI_Gather(&mine, 1, MPI_DOUBLE, seconds.data(), 1, MPI_DOUBLE, 0, comm), "gathering step times");
    result.seconds.push_back(std::move(seconds));
  }
  result.repetition.assign(result.seconds.size(), 0);
  result.position = {0};
}

/// The step whose times stand for all, the same on every rank.
int choose_step(const TimedSteps& steps, MPI_Comm comm, const CaseResult& result) {
  std::vector<double> lengths;
  for (const std::vector<double>& ranks : result.seconds) lengths.push_back(*std::ranges::max_element(ranks));
  int step = steps.choose(lengths);  // that of rank 0 counts
  check(MPI_Bcast(&step, 1, MPI_INT, 0, comm), "choosing a step");
  return step;
}

void collect_time(const schedule::Program& program, const TimedSteps& steps, bool timeline, MPI_Comm comm,
                  CaseResult& result) {
  if (steps.count() == 0) return;
  result.accounted_step = choose_step(steps, comm, result);
  const StepSpans spans = steps.gather(result.accounted_step, comm);
  if (spans.empty()) return;
  const StepAccount found = account(program, spans);
  result.accounted_length = found.length;
  for (const RankAccount& r : found.ranks)
    result.time.push_back({r.compute, r.exposed, r.idle, r.communication, r.hidden});
  if (timeline) result.timeline = trace::make_timeline(program, spans, "", true);
}

std::uint64_t device_used() {
  const auto memory = topology::device_memory();
  return memory ? memory->total - memory->free : 0;
}

void collect_memory(const Session& session, std::uint64_t peak, MPI_Comm comm, CaseResult& result) {
  constexpr int kinds = schedule::memory_kinds;
  std::array<std::uint64_t, 2 * kinds + 2> mine{};
  std::ranges::copy(session.footprint().by_kind, mine.begin());
  std::ranges::copy(session.arena().measured(), mine.begin() + kinds);
  mine[2 * kinds] = peak;
  mine[2 * kinds + 1] = device_used();
  for (const auto& row : gather_rows(mine, comm)) {
    record::RankMemory& memory = result.memory.emplace_back();
    std::copy_n(row.begin(), kinds, memory.planned.begin());
    std::copy_n(row.begin() + kinds, kinds, memory.measured.begin());
    memory.process_peak = row[2 * kinds];
    memory.device_used = row[2 * kinds + 1];
  }
}

void fail(CaseResult& result, std::string reason) {
  if (result.status != record::Status::ok) return;
  result.status = record::Status::wrong;
  result.reason = std::move(reason);
}

std::vector<std::uint64_t> flat(const schedule::ByteMatrix& matrix) {
  std::vector<std::uint64_t> values;
  for (int from = 0; from < matrix.ranks(); ++from)
    for (int to = 0; to < matrix.ranks(); ++to)
      for (int k = 0; k < schedule::traffic_kinds; ++k)
        values.push_back(matrix.at(from, to, static_cast<schedule::Traffic>(k)));
  return values;
}

}  // namespace

void collect(const Session& session, const TimedSteps& steps, std::uint64_t peak, bool timeline,
             MPI_Comm comm, CaseResult& result) {
  collect_samples(steps, comm, result);
  collect_time(session.program(), steps, timeline, comm, result);
  collect_memory(session, peak, comm, result);
  const schedule::Ticks ticks = schedule::ticks(session.program());
  result.ticks = ticks.total;
  for (int r = 0; r < size_of(comm); ++r) {
    result.idle_ticks.push_back(ticks.idle(r));
    if (session.rank() == 0 && result.memory[r].planned != result.memory[r].measured)
      fail(result, fmt::format("rank {}: the arena handed out other sizes than planned", r));
  }
}

void collect_bytes(const schedule::ByteMatrix& sent, const schedule::ByteMatrix& planned, int rank, int steps,
                   MPI_Comm comm, CaseResult& result) {
  result.planned_bytes = flat(planned);
  const std::size_t row = static_cast<std::size_t>(planned.ranks()) * schedule::traffic_kinds;
  const std::vector<std::uint64_t> all = flat(sent);
  result.counted_bytes.resize(result.planned_bytes.size());
  check(MPI_Gather(all.data() + row * rank, static_cast<int>(row), MPI_UINT64_T, result.counted_bytes.data(),
                   static_cast<int>(row), MPI_UINT64_T, 0, comm),
        "gathering byte counters");
  if (rank != 0) return;
  for (std::size_t i = 0; i < result.counted_bytes.size(); ++i) {
    if (result.counted_bytes[i] != result.planned_bytes[i] * steps)
      fail(result, fmt::format("rank {} sent {} bytes in {} steps where {} were planned", i / row,
                               result.counted_bytes[i], steps, result.planned_bytes[i] * steps));
    result.counted_bytes[i] /= steps;
  }
}

}  // namespace minitaw::engine
