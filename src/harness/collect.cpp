// SPDX-License-Identifier: BSD-3-Clause
#include "harness/collect.hpp"
#include <algorithm>
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/sends.hpp"
#include "comm/mpi/transport.hpp"

namespace minitaw::harness {
namespace {
using comm::mpi::check_mpi, comm::mpi::rank_in, comm::mpi::size_of;
constexpr int tag = 0;

/// Allowed beyond what was planned for a device: its driver; each communicator of NCCL has as much
/// as a quarter of it. docs/results.md names it.
constexpr std::uint64_t slack_of_device = std::uint64_t{1} << 30;

void send(double value, int to, MPI_Comm comm) {
  check_mpi(MPI_Send(&value, 1, MPI_DOUBLE, to, tag, comm), "sending a time");
}

double receive(int from, MPI_Comm comm) {
  double value = 0;
  check_mpi(
      MPI_Recv(&value, 1, MPI_DOUBLE, from, tag, comm, MPI_STATUS_IGNORE), "receiving a time");
  return value;
}

/// The step whose times stand for all, on all ranks: of the (lower) median length, or the last one
/// kept.
int choose_step(const TimedSteps& steps, MPI_Comm comm, const CaseResult& result) {
  if (!steps.keeps_all())
    return static_cast<int>(steps.seconds().size()) - 1;
  int step = 0;
  if (rank_in(comm) == 0) {
    std::vector<std::pair<double, int>> lengths;
    for (const std::vector<double>& ranks : result.seconds)
      lengths.emplace_back(*std::ranges::max_element(ranks), static_cast<int>(lengths.size()));
    const auto middle = lengths.begin() + (std::ssize(lengths) - 1) / 2;
    std::ranges::nth_element(lengths, middle);
    step = middle->second;
  }
  check_mpi(MPI_Bcast(&step, 1, MPI_INT, 0, comm), "choosing a step");
  return step;
}

/// Chooses the accounted step and divides its time.
void collect_time(const engine::Runtime& runtime,
    const TimedSteps& steps,
    bool timeline,
    MPI_Comm comm,
    CaseResult& result) {
  if (steps.seconds().empty())
    return;
  const schedule::Program& program = runtime.program();
  result.accounted_step = choose_step(steps, comm, result);
  const trace::StepSpans spans = steps.gather(result.accounted_step, comm);
  if (spans.empty())
    return;
  trace::StepAccount found = trace::account(program, spans);
  result.accounted_length = found.length;
  result.time = std::move(found.ranks);
  if (timeline)
    result.timeline = trace::make_timeline(program, spans, result.asked.groups, "");
}

/// The label of most bytes.
std::string largest(const topology::BytesByLabel& bytes) {
  const auto size = [](const auto& of_label) { return of_label.second; };
  const auto most = std::ranges::max_element(bytes, {}, size);
  return fmt::format("{} bytes of \"{}\"", most->second, most->first);
}

std::uint64_t sum_of(const topology::BytesByLabel& bytes) {
  std::uint64_t sum = 0;
  for (const auto& [label, of_label] : bytes)
    sum += of_label;
  return sum;
}

std::uint64_t at(const topology::BytesByLabel& bytes, const std::string& label) {
  const auto found = bytes.find(label);
  return found == bytes.end() ? 0 : found->second;
}

/// Returns whether Kokkos takes it for itself, as scratch of its teams: it keeps that for all cases
/// to come, and the first one would have it all.
bool is_of_kokkos(const std::string& label) {
  return label.starts_with("Kokkos::");
}

/// The bytes that Kokkos may allocate under each label.
topology::BytesByLabel labels_of(const PlannedMemory& planned) {
  topology::BytesByLabel labels = {{kernels::library_label, planned.libraries},
      {comm::mpi::pinned_label, planned.transport.pinned}};
  for (const auto& [kind, name] : schedule::table_of<schedule::Memory>)
    labels[engine::label_of(kind)] = planned.step.by_kind[index_of(kind)];
  return labels;
}

std::uint64_t less(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : 0;
}

/// The plan does not count the program: it was there before the case.
PlannedMemory planned_memory(
    const engine::Runtime& runtime, const Case& settings, bool shared_devices) {
  const model::Layout& layout = runtime.layout();
  PlannedMemory planned{.step = runtime.footprint(),
      .process = schedule::span_bytes(runtime.program(), runtime.own(), settings.steps) +
                 blas_bytes(layout.shape),
      .transport = engine::transport_memory(
          runtime.program(), settings.transport, shared_devices)[runtime.own()]};
  // A version that asks for more than the estimate is no fault of the case.
  if (!kernels::on_host)
    planned.libraries = std::max(model::library_estimate(layout.shape), kernels::library_bytes());
  return planned;
}

void collect_memory(const engine::Runtime& runtime,
    const topology::MemoryTaken& taken,
    MPI_Comm comm,
    CaseResult& result) {
  const bool shared = taken.device_begin == 0;  // then NCCL is not used
  const PlannedMemory planned = planned_memory(runtime, result.asked, shared);
  result.memory = comm::mpi::gather(memory_of(planned, taken), comm, "gathering memory");
  fail_at_first(result, excess(planned, taken), comm);
}
}  // namespace

/// Pinned slots are buffers; workspaces of libraries are in no figure.
RankMemory memory_of(const PlannedMemory& planned, const topology::MemoryTaken& taken) {
  RankMemory memory;
  std::ranges::copy(planned.step.by_kind, memory.planned.begin());
  for (const auto& [kind, name] : schedule::table_of<schedule::Memory>)
    memory.measured[index_of(kind)] = at(taken.kokkos, engine::label_of(kind));
  constexpr std::size_t buffers = index_of(schedule::Memory::buffers);
  memory.planned[buffers] += planned.transport.pinned;
  memory.measured[buffers] += at(taken.kokkos, comm::mpi::pinned_label);
  const topology::BytesByLabel labels = labels_of(planned);
  for (const auto& [label, bytes] : taken.kokkos)
    if (!labels.contains(label) && !is_of_kokkos(label))
      memory.other += bytes;
  memory.process_begin = taken.process_begin;
  memory.process_peak = taken.process_peak;
  memory.device_used = taken.device_used;
  return memory;
}

std::uint64_t slack_of_kokkos() {
  constexpr std::uint64_t of_thread = std::uint64_t{1} << 20, of_device = std::uint64_t{64} << 20;
  return kernels::on_host ? of_thread * model::ExecutionSpace().concurrency() : of_device;
}

std::string excess(const PlannedMemory& planned, const topology::MemoryTaken& taken) {
  const topology::BytesByLabel labels = labels_of(planned);
  for (const auto& [kind, name] : schedule::table_of<schedule::Memory>) {
    const std::string label = engine::label_of(kind);
    if (const std::uint64_t bytes = at(taken.kokkos, label); bytes < labels.at(label))
      return fmt::format(
          "{} bytes of \"{}\" where {} were planned", bytes, label, labels.at(label));
  }
  topology::BytesByLabel beyond;
  for (const auto& [label, bytes] : taken.kokkos)
    if (!is_of_kokkos(label))
      beyond[label] = less(bytes, at(labels, label));
  if (sum_of(beyond) > slack_of_kokkos())
    return fmt::format(
        "Kokkos has allocated {} bytes more than planned: {}", sum_of(beyond), largest(beyond));

  const auto outside = [&](const char* where, std::uint64_t grown, std::uint64_t allowed) {
    const std::uint64_t bytes = less(grown, sum_of(taken.kokkos));
    return bytes > allowed
               ? fmt::format("{} has taken {} bytes outside of Kokkos where {} were allowed",
                     where,
                     bytes,
                     allowed)
               : "";
  };
  if (kernels::on_host && taken.process_begin > 0)
    return outside("the process",
        less(taken.process_peak, taken.process_begin),
        planned.process + slack_of_process);
  if (taken.device_begin > 0)
    return outside("the device",
        less(taken.device_used, taken.device_begin),
        slack_of_device + planned.transport.communicators * slack_of_device / 4);
  return {};
}

std::uint64_t blas_bytes(const model::Shape& shape) {
  return kernels::on_host ? model::blas_estimate(shape, model::ExecutionSpace().concurrency()) : 0;
}

std::string leftover(topology::BytesByLabel kept, std::uint64_t grown, std::uint64_t beside) {
  std::erase_if(kept, [](const auto& of_label) {
    return of_label.first == kernels::library_label || is_of_kokkos(of_label.first);
  });
  if (sum_of(kept) > slack_of_kokkos())
    return fmt::format("after the case Kokkos still holds {}", largest(kept));
  if (kernels::on_host && grown > beside + slack_of_process)
    return fmt::format(
        "after the case the process holds {} bytes more than before, outside of Kokkos", grown);
  return {};
}

std::string first_text(const std::string& mine, MPI_Comm comm) {
  const auto [rank, text] = comm::mpi::first_text(mine, comm);
  return text.empty() ? "" : fmt::format("rank {}: {}", rank, text);
}

void fail_at_first(CaseResult& result, const std::string& mine, MPI_Comm comm) {
  const std::string text = first_text(mine, comm);
  if (!text.empty() && rank_in(comm) == 0)
    fail(result, text);
}

double offset_by_messages(MPI_Comm comm, const Now& now) {
  constexpr int rounds = 10;
  if (rank_in(comm) == 0) {
    for (int message = 0; message < rounds * (size_of(comm) - 1); ++message) {
      const int rank = 1 + message / rounds;
      (void)receive(rank, comm);
      send(now(), rank, comm);
    }
    return 0;
  }
  // The answer of the fastest round was given closest to its middle.
  double fastest = std::numeric_limits<double>::infinity(), offset = 0;
  for (int round = 0; round < rounds; ++round) {
    const double asked = now();
    send(asked, 0, comm);
    const double theirs = receive(0, comm), answered = now();
    if (answered - asked >= fastest)
      continue;
    fastest = answered - asked;
    offset = theirs - 0.5 * (asked + answered);
  }
  return offset;
}

double clock_offset(MPI_Comm comm) {
  comm::mpi::OwnComm node, first_ranks;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node.comm),
      "MPI_Comm_split_type");
  check_mpi(MPI_Comm_split(comm, rank_in(node.comm) == 0 ? 0 : MPI_UNDEFINED, 0, &first_ranks.comm),
      "MPI_Comm_split");
  double offset = 0;
  if (first_ranks.comm != MPI_COMM_NULL)
    offset = offset_by_messages(first_ranks.comm, engine::host_seconds);
  check_mpi(
      MPI_Bcast(&offset, 1, MPI_DOUBLE, 0, node.comm), "sharing the offset of a node's clock");
  return offset;
}

namespace {
/// Bytes that this rank sends: planned in a step, counted since the case began.
std::vector<LinkBytes> bytes_of_rank(engine::Runtime& runtime) {
  const schedule::ByteMatrix planned =
      schedule::bytes_of_rank(runtime.program(), runtime.layout(), runtime.rank());
  const std::vector<std::uint64_t> sent = runtime.transport().sent();
  std::vector<LinkBytes> list;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const int to = static_cast<int>(i / schedule::traffic_kinds);
    const auto kind = static_cast<schedule::Traffic>(i % schedule::traffic_kinds);
    const std::uint64_t plan = planned.at(runtime.rank(), to, kind);
    if (plan > 0 || sent[i] > 0)
      list.push_back({runtime.rank(), to, kind, plan, sent[i]});
  }
  return list;
}
}  // namespace

void collect_bytes(engine::Runtime& runtime, int steps, MPI_Comm comm, CaseResult& result) {
  result.bytes_source = runtime.transport().bytes_source();
  const auto bytes =
      comm::mpi::gather_lists(bytes_of_rank(runtime), comm, "gathering byte counters");
  result.bytes = list_of(bytes | std::views::join);
  const std::string call = first_text(comm::mpi::take_uncounted(), comm);
  if (runtime.rank() != 0)
    return;
  if (!call.empty())
    fail(result, fmt::format("a step sends what is not counted: {}", call));
  for (LinkBytes& link : result.bytes) {
    if (link.counted != link.planned * steps)
      fail(result,
          fmt::format("rank {} sent {} bytes in {} where {} were planned",
              link.from,
              link.counted,
              counted(steps, "step"),
              link.planned * steps));
    link.counted /= steps;
  }
}

TimedSteps::TimedSteps(const schedule::Program& program, int steps, std::size_t most)
    : keeps_all_(schedule::kept_steps(program, steps, most) == steps) {}

void TimedSteps::add(const engine::Executor& executor, double seconds) {
  seconds_.push_back(seconds);
  if (!keeps_all_)
    kept_.clear();
  kept_.push_back({executor.started(), executor.spans()});
}

trace::StepSpans TimedSteps::gather(int step, MPI_Comm comm) const {
  const Kept& mine = kept(step);
  const std::vector<double> started =
      comm::mpi::gather(mine.started + clock_offset(comm), comm, "gathering starts");
  trace::StepSpans all = comm::mpi::gather_lists(mine.spans, comm, "gathering spans");
  if (all.empty())
    return {};
  const double first = *std::ranges::min_element(started);
  for (std::size_t r = 0; r < all.size(); ++r)
    for (engine::Span& span : all[r])
      for (double* time : {&span.ready, &span.begin, &span.end})
        *time += started[r] - first;
  return all;
}

void collect(engine::Runtime& runtime,
    const TimedSteps& steps,
    int executed,
    const topology::MemoryTaken& taken,
    bool timeline,
    MPI_Comm comm,
    CaseResult& result) {
  collect_bytes(runtime, executed, comm, result);
  for (const double mine : steps.seconds())
    result.seconds.push_back(comm::mpi::gather(mine, comm, "gathering step times"));
  collect_time(runtime, steps, timeline, comm, result);
  collect_memory(runtime, taken, comm, result);
  const schedule::Ticks ticks = schedule::ticks(runtime.program());
  result.ticks = ticks.total;
  for (int r = 0; r < size_of(comm); ++r)
    result.idle_ticks.push_back(ticks.idle(runtime.program().rank_of(r)));
}
}  // namespace minitaw::harness
