// SPDX-License-Identifier: BSD-3-Clause
#include "harness/replay.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <fmt/format.h>
#include <map>

#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "harness/case_runner.hpp"
#include "schedule/execute.hpp"

namespace minitaw::harness {
namespace {
using comm::mpi::check;
using schedule::Action, schedule::Kind, schedule::Place, schedule::Program;

/// Sums of an action: of each buffer that it touches, before and after it.
constexpr std::size_t buffers = schedule::most_operands + 1, sums_of_action = 2 * buffers;
using Sums = std::vector<std::uint64_t>;                  ///< of a rank: [step][action][buffer][after]
using Counts = std::array<std::atomic<std::int64_t>, 3>;  ///< actions, tensors, bytes

/// Executes the steps of a run on one rank.
Sums execute(engine::Runtime& runtime, int run, const ReplayOptions& options, Counts& counts) {
  const std::vector<Action>& actions = runtime.program().ranks[runtime.rank()].actions;
  const std::size_t each = actions.size() * sums_of_action;
  Kokkos::View<std::uint64_t*, model::ExecutionSpace::memory_space> sums("minitaw::check_sums", each);
  Sums all;
  for (int step = 0; step < options.steps; ++step) {
    runtime.observe([&, step](const Action& a, bool after) {
      if (options.disturb) options.disturb(run, step, runtime, a, after);
      std::uint64_t* sum = sums.data() + (&a - actions.data()) * sums_of_action + (after ? 1 : 0);
      counts[0] += after ? 1 : 0;
      for (const auto& [in, out] : runtime.touched(a)) {
        const model::Buffer& buffer = after ? out : in;
        if (buffer.bytes > 0) kernels::check_sum(engine::lane_space(a.lane), buffer.data, buffer.bytes, sum);
        counts[1] += buffer.bytes > 0 ? 1 : 0;
        counts[2] += static_cast<std::int64_t>(buffer.bytes);
        sum += 2;
      }
    });
    runtime.prepare();
    (void)runtime.step();
    Kokkos::fence("minitaw::harness::replay");
    const auto on_host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, sums);
    all.insert(all.end(), on_host.data(), on_host.data() + each);
  }
  return all;
}

std::vector<Sums> gather(MPI_Comm world, const Sums& mine) {
  const int ranks = comm::mpi::size_of(world), count = static_cast<int>(mine.size());
  std::vector<int> counts(ranks), starts(ranks + 1);
  check(MPI_Gather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, world), "gathering check sums");
  for (int r = 0; r < ranks; ++r) starts[r + 1] = starts[r] + counts[r];
  Sums all(starts.back());
  check(MPI_Gatherv(mine.data(), count, MPI_UINT64_T, all.data(), counts.data(), starts.data(), MPI_UINT64_T, 0, world),
      "gathering check sums");
  std::vector<Sums> by_rank;
  for (int r = 0; r < ranks; ++r) by_rank.emplace_back(all.begin() + starts[r], all.begin() + starts[r + 1]);
  return by_rank;
}

/// Goes through a step in the order of the data flow, and finds values that are wrong although all that they
/// come from is right. Right is what most runs have.
class Judge final : public schedule::Listener {
public:
  /// `runs`: sums by run and rank of the job.
  Judge(const Program& program, const std::vector<std::vector<Sums>>& runs, const ReplayOptions& options)
      : program_(program), runs_(runs), options_(options) {}

  std::vector<ReplayFinding> run() {
    for (step_ = 0; step_ < options_.steps; ++step_) schedule::detail::execute(program_, *this);
    return std::move(findings_);
  }

  void local(Place action) override { judge({&action, 1}); }
  void message(Place send, Place receive) override { judge(std::array{send, receive}); }
  void collective(std::span<const Place> calls) override { judge(calls); }

private:
  [[nodiscard]] const Action& at(Place p) const { return program_.ranks[p.rank].actions[p.action]; }
  /// The rank of the job that executes a rank of the program.
  [[nodiscard]] int job_rank(std::size_t run, int rank) const {
    const int ranks = static_cast<int>(runs_[run].size());
    return (rank + ranks - static_cast<int>(run) % ranks) % ranks;
  }
  [[nodiscard]] std::uint64_t sum(std::size_t run, Place p, std::size_t buffer, bool after) const {
    const std::size_t index = step_ * program_.ranks[p.rank].actions.size() + p.action;
    return runs_[run][job_rank(run, p.rank)][index * sums_of_action + 2 * buffer + (after ? 1 : 0)];
  }
  [[nodiscard]] bool is_right(std::size_t run, Place p, std::size_t buffer, bool after) const {
    std::size_t alike = 0;
    for (std::size_t other = 0; other < runs_.size(); ++other)
      alike += sum(other, p, buffer, after) == sum(run, p, buffer, after) ? 1 : 0;
    return 2 * alike > runs_.size();
  }
  [[nodiscard]] std::string tensor(Place p, std::size_t buffer) const {
    const schedule::Accesses all = schedule::accesses(at(p), p.rank);
    if (static_cast<int>(buffer) < all.count) return name_of(all.items[buffer].slot);
    return at(p).kind == Kind::update ? "optimiser state of " + name_of(all.items[0].slot) : "loss";
  }

  void judge(std::span<const Place> sides) {
    for (std::size_t run = 0; run < runs_.size() && !is_same(sides); ++run) {
      bool right = true;  // all that goes in
      for (const Place side : sides)
        for (std::size_t b = 0; b < buffers; ++b) {
          if (is_right(run, side, b, false)) continue;
          right = false;
          if (!std::exchange(wrong(run, side, b), true)) found(ReplayFinding::Kind::stored, run, sides, side, b);
        }
      for (const Place side : sides)
        for (std::size_t b = 0; b < buffers; ++b) {
          if (sum(run, side, b, true) == 0) continue;  // nothing is written
          const bool is = is_right(run, side, b, true);
          if (!is && right && !wrong(run, side, b)) {
            found(schedule::is_communication(at(side).kind) ? ReplayFinding::Kind::transferred
                                                            : ReplayFinding::Kind::computed,
                run, sides, side, b);
            right = false;  // the first one is enough
          }
          if (!is || !right) wrong(run, side, b) = true;
        }
    }
  }

  [[nodiscard]] bool is_same(std::span<const Place> sides) const {
    for (const Place side : sides)
      for (std::size_t i = 0; i < 2 * buffers * runs_.size(); ++i) {
        const std::size_t run = i / buffers / 2, b = i / 2 % buffers;
        if (sum(run, side, b, i % 2 == 1) != sum(0, side, b, i % 2 == 1)) return false;
      }
    return true;
  }

  /// Whether what a slot holds may be wrong; it stays so, for parts of it that are not written again.
  bool& wrong(std::size_t run, Place p, std::size_t buffer) { return wrong_[{run, p.rank, tensor(p, buffer)}]; }

  void found(ReplayFinding::Kind kind, std::size_t run, std::span<const Place> sides, Place p, std::size_t b) {
    ReplayFinding f{kind, static_cast<int>(run), step_, p.rank, p.action, tensor(p, b), job_rank(run, p.rank), -1, {}};
    const bool after = kind != ReplayFinding::Kind::stored;
    bool is_known = false;
    for (std::size_t other = 0; other < runs_.size(); ++other) is_known = is_known || is_right(other, p, b, after);
    if (!is_known && run > 0) return;  // it has been said for the first one
    if (!is_known) f.job_rank = -1;
    const Kind action = at(p).kind;
    if (is_known && after && (action == Kind::recv || action == Kind::broadcast)) f.sender = job_rank(run, at(p).peer);
    f.sentence = sentence(f, sides);
    findings_.push_back(std::move(f));
  }

  [[nodiscard]] std::string place(int job_rank) const {
    if (job_rank < 0) return "a rank that the runs do not tell";
    const auto r = static_cast<std::size_t>(job_rank);
    return fmt::format("rank {}{}", r, r < options_.places.size() ? fmt::format(" ({})", options_.places[r]) : "");
  }
  [[nodiscard]] std::string sentence(const ReplayFinding& f, std::span<const Place> sides) const {
    const std::string action = schedule::to_text(program_.ranks[f.rank].actions[f.action], program_);
    const std::string where =
        fmt::format("run {}, step {}, {}, in the place of rank {}: ", f.run + 1, f.step + 1, place(f.job_rank), f.rank);
    if (f.kind == ReplayFinding::Kind::stored)
      return where + fmt::format("{} has changed before '{}'", f.tensor, action);
    if (f.kind == ReplayFinding::Kind::computed)
      return where + fmt::format("'{}' has a wrong {} from right inputs", action, f.tensor);
    return where + fmt::format("'{}' has a wrong {}, and what {} sent is right", action, f.tensor,
                       f.sender >= 0 ? place(f.sender) : fmt::format("the {} ranks", sides.size()));
  }

  const Program& program_;
  const std::vector<std::vector<Sums>>& runs_;
  const ReplayOptions& options_;
  int step_ = 0;
  std::map<std::tuple<std::size_t, int, std::string>, bool> wrong_;
  std::vector<ReplayFinding> findings_;
};

/// Whatever sums in an order that depends on time or place is refused, or replaced where it was not asked
/// for.
void make_repeatable(Case& c) {
  if (c.attention == "cudnn" || c.transport == "nccl")
    throw InputError(
        fmt::format("{}: its sums have no fixed order; a replay takes attention = portable or host and transport = mpi",
            c.attention == "cudnn" ? "attention = cudnn" : "transport = nccl"));
  c.transport = "mpi";
  if (c.attention == "auto" && !kernels::on_host) c.attention = "portable";
}
}  // namespace

ReplayReport replay(MPI_Comm world, Case c, const ReplayOptions& options, const MakeRuntime& make) {
  make_repeatable(c);
  const int rank = comm::mpi::rank_in(world), ranks = comm::mpi::size_of(world);
  Counts counts{};
  std::vector<std::vector<Sums>> runs;
  for (int more = 2; more > 0; --more) {
    const int run = static_cast<int>(runs.size()), place = (rank + run) % ranks;
    comm::mpi::OwnComm members;
    check(MPI_Comm_split(world, place < c.ranks ? 0 : MPI_UNDEFINED, place, &members.comm), "MPI_Comm_split");
    Sums mine;
    std::exception_ptr failed;
    try {
      if (members.comm != MPI_COMM_NULL) mine = execute(*make(c, members.comm), run, options, counts);
    } catch (const AgreedError&) {
      failed = std::current_exception();
    } catch (const InputError&) {
      failed = std::current_exception();
    }
    agree(world, [&] {
      if (failed) std::rethrow_exception(failed);
    });
    runs.push_back(gather(world, mine));
    if (run == 1) {
      std::vector<Sums> second = runs[1];
      std::ranges::rotate(second, second.end() - 1);  // in the order of the first run
      more += runs[0] == second ? 0 : ranks == 2 ? 2 : 1;
      check(MPI_Bcast(&more, 1, MPI_INT, 0, world), "agreeing on further runs");
    }
  }
  std::array<std::int64_t, 3> sum{counts[0], counts[1], counts[2]};
  check(MPI_Allreduce(MPI_IN_PLACE, sum.data(), 3, MPI_INT64_T, MPI_SUM, world), "counting check sums");
  ReplayReport report{{}, static_cast<int>(runs.size()), sum[0], sum[1], sum[2]};
  if (rank == 0 && runs.size() > 2) {
    const Program program = schedule::build_valid(request_of(c));
    report.findings = Judge(program, runs, options).run();
  }
  return report;
}
}  // namespace minitaw::harness
