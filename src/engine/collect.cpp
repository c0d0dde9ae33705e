#include "engine/collect.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <string_view>
#include <type_traits>

#include "comm/mpi/mpi.hpp"
#include "engine/account.hpp"
#include "engine/queue.hpp"
#include "topology/devices.hpp"

namespace minitaw::engine {

namespace {

using comm::mpi::check;
using comm::mpi::rank_in;
using comm::mpi::size_of;

constexpr int rounds = 10;
constexpr int tag = 0;

/// A communicator of some of the ranks of another one; MPI_COMM_NULL on the others.
struct Part {
  MPI_Comm comm = MPI_COMM_NULL;

  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

void send(double value, int to, MPI_Comm comm) {
  check(MPI_Send(&value, 1, MPI_DOUBLE, to, tag, comm), "sending a time");
}

double receive(int from, MPI_Comm comm) {
  double value = 0;
  check(MPI_Recv(&value, 1, MPI_DOUBLE, from, tag, comm, MPI_STATUS_IGNORE), "receiving a time");
  return value;
}

/// Rank 0's side. The answer of the fastest round was given closest to its middle.
double offset_of(int rank, MPI_Comm comm, const Now& now) {
  double fastest = std::numeric_limits<double>::infinity();
  double offset = 0;
  for (int round = 0; round < rounds; ++round) {
    const double asked = now();
    send(asked, rank, comm);
    const double theirs = receive(rank, comm);
    const double answered = now();
    if (answered - asked >= fastest) continue;
    fastest = answered - asked;
    offset = 0.5 * (asked + answered) - theirs;
  }
  return offset;
}

}  // namespace

double offset_by_messages(MPI_Comm comm, const Now& now) {
  if (rank_in(comm) == 0) {
    for (int rank = 1; rank < size_of(comm); ++rank) send(offset_of(rank, comm, now), rank, comm);
    return 0;
  }
  for (int round = 0; round < rounds; ++round) {
    (void)receive(0, comm);
    send(now(), 0, comm);
  }
  return receive(0, comm);
}

double clock_offset(MPI_Comm comm) {
  Part node, first_ranks;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node.comm), "MPI_Comm_split_type");
  check(MPI_Comm_split(comm, rank_in(node.comm) == 0 ? 0 : MPI_UNDEFINED, 0, &first_ranks.comm),
        "MPI_Comm_split");
  double offset = 0;
  if (first_ranks.comm != MPI_COMM_NULL) offset = offset_by_messages(first_ranks.comm, host_seconds);
  check(MPI_Bcast(&offset, 1, MPI_DOUBLE, 0, node.comm), "sharing the offset of a node's clock");
  return offset;
}

namespace {

using comm::mpi::check;

static_assert(sizeof(Span) == 3 * sizeof(double), "spans travel as doubles");

std::size_t longest(const schedule::Program& program) {
  std::size_t actions = 0;
  for (const schedule::RankProgram& rank : program.ranks) actions = std::max(actions, rank.actions.size());
  return actions;
}

void shift(StepSpans& spans, const std::vector<double>& started) {
  const double first = *std::ranges::min_element(started);
  for (std::size_t r = 0; r < spans.size(); ++r)
    for (Span& span : spans[r]) {
      span.ready += started[r] - first;
      span.begin += started[r] - first;
      span.end += started[r] - first;
    }
}

}  // namespace

TimedSteps::TimedSteps(const schedule::Program& program, int steps, std::size_t most)
    : program_(program), keeps_all_(longest(program) * static_cast<std::size_t>(steps) <= most) {}

void TimedSteps::add(const Executor& executor, StepTime time) {
  seconds_.push_back(time.total);
  if (keeps_all_ || kept_.empty()) kept_.emplace_back();
  kept_.back().started = executor.started();
  kept_.back().spans = executor.spans();
}

int TimedSteps::choose(const std::vector<double>& lengths) const {
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (!keeps_all_) return order.back();
  std::ranges::stable_sort(order, {}, [&](int step) { return lengths[step]; });
  return order[(order.size() - 1) / 2];
}

StepSpans TimedSteps::gather(int step, MPI_Comm comm) const {
  const int rank = comm::mpi::rank_in(comm);
  const Kept& mine = kept(step);
  const double start = mine.started + clock_offset(comm);
  std::vector<double> started(rank == 0 ? program_.ranks.size() : 0);
  check(MPI_Gather(&start, 1, MPI_DOUBLE, started.data(), 1, MPI_DOUBLE, 0, comm), "gathering starts");
  // One rank after the other: together they may be more doubles than an int can count.
  constexpr int tag = 0;
  const auto doubles = [](const std::vector<Span>& spans) { return static_cast<int>(3 * spans.size()); };
  if (rank != 0) {
    check(MPI_Send(mine.spans.data(), doubles(mine.spans), MPI_DOUBLE, 0, tag, comm), "sending spans");
    return {};
  }
  StepSpans all = {mine.spans};
  for (int from = 1; from < static_cast<int>(started.size()); ++from) {
    std::vector<Span>& spans = all.emplace_back(program_.ranks[from].actions.size());
    check(MPI_Recv(spans.data(), doubles(spans), MPI_DOUBLE, from, tag, comm, MPI_STATUS_IGNORE),
          "gathering spans");
  }
  shift(all, started);
  return all;
}

namespace {

using comm::mpi::check;
using comm::mpi::size_of;
using record::DeviceSample;

constexpr double none = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view unavailable = "unavailable: ";

static_assert(std::is_trivially_copyable_v<DeviceSample>, "samples travel as bytes");

/// Of the lowest rank that has a fault, on all ranks; empty if none has. Says which rank, unless all have
/// one.
std::string first_fault(const std::string& fault, MPI_Comm comm) {
  const std::vector<std::string> faults = comm::mpi::gather_texts(fault, comm);
  const auto first = std::ranges::find_if_not(faults, &std::string::empty);
  if (first == faults.end()) return {};
  const bool all = std::ranges::none_of(faults, &std::string::empty);
  return all ? *first : fmt::format("rank {}: {}", first - faults.begin(), *first);
}

}  // namespace

StepMeter::StepMeter(meters::Meter* meter)
    : meter_(meter), fault_(meter == nullptr ? "no NVIDIA device" : meter->fault()), before_(none),
      after_(none) {
  if (!fault_.empty()) meter_ = nullptr;
}

void StepMeter::begin() {
  if (meter_ != nullptr) before_ = meter_->energy();
}

void StepMeter::sample() {
  if (meter_ != nullptr) samples_.push_back(meter_->read());
}

void StepMeter::end() {
  if (meter_ == nullptr) return;
  after_ = meter_->energy();
  fault_ = meter_->fault();
}

void StepMeter::collect_samples(MPI_Comm comm, record::CaseResult& result) const {
  for (const DeviceSample& mine : samples_) {
    std::vector<DeviceSample> all(static_cast<std::size_t>(size_of(comm)));
    check(MPI_Gather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, 0, comm),
          "gathering device samples");
    result.device_samples.push_back(std::move(all));
  }
}

void StepMeter::collect_energy(MPI_Comm comm, record::CaseResult& result) const {
  // A counter that stands still, or was set back, has counted nothing.
  const double mine = after_ > before_ ? after_ - before_ : none;
  std::vector<double> all(static_cast<std::size_t>(size_of(comm)));
  check(MPI_Gather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, 0, comm), "gathering energies");
  int counted = std::isnan(before_) ? 0 : 1;
  check(MPI_Allreduce(MPI_IN_PLACE, &counted, 1, MPI_INT, MPI_MAX, comm), "agreeing on meters");
  if (counted != 0) result.energy.push_back(std::move(all));
}

void StepMeter::collect(MPI_Comm comm, record::CaseResult& result) const {
  const std::string fault = first_fault(fault_, comm);
  if (fault.empty()) {
    collect_samples(comm, result);
    collect_energy(comm, result);
    if (!result.counters.starts_with(unavailable)) result.counters = meter_->name();
  } else if (!result.counters.starts_with(unavailable)) {
    result.counters = fmt::format("{}{}", unavailable, fault);
  }
  if (!result.counters.starts_with(unavailable)) return;
  result.device_samples.clear();
  result.energy.clear();
}

namespace {

using comm::mpi::check;
using comm::mpi::size_of;
using record::CaseResult;

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
  StepAccount found = account(program, spans);
  result.accounted_length = found.length;
  result.time = std::move(found.ranks);
  if (timeline) result.timeline = trace::make_timeline(program, spans, "", true);
}

std::uint64_t device_used() {
  const auto memory = topology::device_memory();
  return memory ? memory->total - memory->free : 0;
}

void collect_memory(const Session& session, std::uint64_t peak, MPI_Comm comm, CaseResult& result) {
  record::RankMemory mine{{}, session.arena().measured(), peak, device_used()};
  std::ranges::copy(session.footprint().by_kind, mine.planned.begin());
  result.memory.resize(size_of(comm));
  check(MPI_Gather(&mine, sizeof mine, MPI_BYTE, result.memory.data(), sizeof mine, MPI_BYTE, 0, comm),
        "gathering memory");
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
