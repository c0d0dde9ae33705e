#include "engine/collect.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/mpi/check.hpp"
#include "topology/devices.hpp"

namespace minitaw::engine {
namespace {

using comm::mpi::check;
using record::CaseResult;

int size_of(MPI_Comm comm) {
  int ranks = 1;
  check(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  return ranks;
}

template <class T, std::size_t N>
std::vector<std::array<T, N>> gather_rows(const std::array<T, N>& mine, MPI_Comm comm) {
  std::vector<std::array<T, N>> all(size_of(comm));
  check(MPI_Gather(mine.data(), sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, 0, comm),
        "MPI_Gather");
  return all;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

template <class Field>
double median_of(const std::vector<StepTime>& times, Field field) {
  std::vector<double> values;
  for (const StepTime& t : times) values.push_back(t.*field);
  return median(std::move(values));
}

void collect_samples(const std::vector<StepTime>& times, MPI_Comm comm, CaseResult& result) {
  for (const StepTime& t : times) {
    std::vector<double> seconds(size_of(comm));
    check(MPI_Gather(&t.total, 1, MPI_DOUBLE, seconds.data(), 1, MPI_DOUBLE, 0, comm),
          "gathering step times");
    result.seconds.push_back(std::move(seconds));
  }
}

void collect_time(const std::vector<StepTime>& times, MPI_Comm comm, CaseResult& result) {
  const std::array<double, 4> mine = {median_of(times, &StepTime::compute),
                                      median_of(times, &StepTime::exposed), median_of(times, &StepTime::idle),
                                      median_of(times, &StepTime::communication)};
  for (const auto& row : gather_rows(mine, comm)) result.time.push_back({row[0], row[1], row[2], row[3]});
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

void collect(const Session& session, const std::vector<StepTime>& times, std::uint64_t peak, MPI_Comm comm,
             CaseResult& result) {
  collect_samples(times, comm, result);
  collect_time(times, comm, result);
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
