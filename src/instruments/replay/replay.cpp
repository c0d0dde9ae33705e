// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/replay/replay.hpp"
#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <tuple>
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "schedule/execute.hpp"

namespace minitaw::replay {
namespace {
using comm::mpi::check;
using schedule::Action, schedule::Kind, schedule::Place, schedule::Program;
/// Check sums of a run, as many for each rank of the program: [step][action][buffer][before,
/// after]; 0: none.
using Sums = std::vector<std::uint64_t>;
constexpr std::size_t buffers = schedule::most_operands + 1, sums_of_action = 2 * buffers;

/// Executes the steps of a run on one rank. Fills in its sums.
void sum_steps(
    engine::Runtime& runtime, int steps, const Disturb& disturb, Sums& mine, Report& report) {
  const std::vector<Action>& actions = runtime.program().ranks[runtime.rank()].actions;
  const Kokkos::View<std::uint64_t*, model::ExecutionSpace::memory_space> sums(
      "minitaw::check_sums", mine.size());
  int step = 0;
  runtime.observe([&](const Action& a, bool after) {
    if (disturb)
      disturb(report.runs, step, runtime, a, after);
    const std::size_t number = step * actions.size() + (&a - actions.data());
    std::uint64_t* sum = sums.data() + number * sums_of_action + (after ? 1 : 0);
    std::atomic_ref(report.actions) += after ? 1 : 0;
    for (const auto& [in, out] : runtime.touched(a)) {
      const model::Buffer& buffer = after ? out : in;
      if (buffer.bytes > 0)
        kernels::check_sum(engine::lane_space(a.lane), buffer.data, buffer.bytes, sum);
      std::atomic_ref(report.tensors) += buffer.bytes > 0 ? 1 : 0;
      std::atomic_ref(report.bytes) += static_cast<std::int64_t>(buffer.bytes);
      sum += 2;
    }
  });
  for (; step < steps; ++step) {
    runtime.prepare();
    (void)runtime.step();
  }
  Kokkos::deep_copy(Kokkos::View<std::uint64_t*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                        mine.data(), mine.size()),
      sums);
}

/// Finds values that are wrong although all that they come from, in the order of the data flow, is
/// what most runs have.
class Comparison {
public:
  Comparison(const Program& program,
      int ranks,
      const std::vector<Sums>& runs,
      const std::vector<std::string>& places)
      : program_(program),
        ranks_(ranks),
        runs_(runs),
        places_(places) {}

  std::vector<std::string> run(int steps) {
    for (; step_ < steps; ++step_)
      schedule::detail::execute(program_, [&](schedule::Sides sides) { judge(sides); });
    return std::move(findings_);
  }

private:
  struct Value {
    Place place;
    std::size_t buffer;
    bool after;
  };

  const Action& at(Place p) const { return action_at(program_, p); }

  std::size_t index(const Value& v) const {
    const std::size_t action = step_ * program_.ranks[v.place.rank].actions.size() + v.place.action;
    return runs_[0].size() / ranks_ * v.place.rank + action * sums_of_action + 2 * v.buffer +
           (v.after ? 1 : 0);
  }

  /// What most runs have, if there is such a value.
  std::optional<std::uint64_t> usual(std::size_t index) const {
    const auto sum = [index](const Sums& run) { return run[index]; };
    for (const Sums& run : runs_)
      if (2 * std::ranges::count(runs_, run[index], sum) > std::ssize(runs_))
        return run[index];
    return {};
  }

  std::string tensor(const Value& v) const {
    const schedule::Accesses all = schedule::accesses(at(v.place), v.place.rank);
    if (static_cast<int>(v.buffer) < all.count)
      return name_of(all.items[v.buffer].slot);
    return at(v.place).kind == Kind::update ? "optimiser state of " + name_of(all.items[0].slot)
                                            : "loss";
  }

  void judge(schedule::Sides sides) {
    for (int run = 0; run < std::ssize(runs_); ++run)
      for (bool right = true; const bool after : {false, true})
        for (const Place side : sides)
          for (std::size_t b = 0; b < buffers; ++b)
            right = judge(run, {side, b, after}, sides.size(), right);
  }

  /// `right`: all before this value that goes in or comes out, unless it was wrong already. Returns
  /// that with it.
  bool judge(int run, const Value& v, std::size_t sides, bool right) {
    const std::uint64_t mine = runs_[run][index(v)];
    const std::optional<std::uint64_t> most = usual(index(v));
    const bool explained = v.after && !right;
    if (mine == 0 || (mine == most && !explained))
      return right;
    // A slot stays wrong, for parts of it that are not written again.
    const bool known = !wrong_.emplace(run, v.place.rank, tensor(v)).second;
    if (!known && !explained &&
        (most || run == 0))  // if no run is right, it is said for the first one
      findings_.push_back(sentence(run, v, sides, most.has_value()));
    return right && known && v.after;
  }

  /// The rank of the job that had the place of a rank of the program in a run: "rank 3 (node 1,
  /// device 0)".
  std::string placed(int rank, int run) const {
    const std::size_t r = (rank + ranks_ - run % ranks_) % ranks_;
    return fmt::format("rank {}{}", r, r < places_.size() ? fmt::format(" ({})", places_[r]) : "");
  }

  /// `told`: the runs tell which of them is wrong.
  std::string sentence(int run, const Value& v, std::size_t sides, bool told) const {
    const Action& a = at(v.place);
    const std::string action = schedule::to_text(a, program_);
    const std::string where = fmt::format("run {}, step {}, {}, in the place of rank {}: ",
        run + 1,
        step_ + 1,
        told ? placed(v.place.rank, run) : "a rank that the runs do not tell",
        v.place.rank);
    if (!v.after)
      return fmt::format("{}{} has changed before '{}'", where, tensor(v), action);
    const std::string what = fmt::format("{}'{}' has a wrong {}", where, action, tensor(v));
    if (!is_communication(a.kind))
      return what + " from right inputs";
    const bool one = told && (a.kind == Kind::recv || a.kind == Kind::broadcast);
    return fmt::format("{}, and what {} sent is right",
        what,
        one ? placed(a.peer, run) : fmt::format("the {} ranks", sides));
  }

  const Program& program_;
  int ranks_;
  const std::vector<Sums>& runs_;
  const std::vector<std::string>& places_;
  int step_ = 0;
  /// Tensors of a rank in a run that may be wrong.
  std::set<std::tuple<int, int, std::string>> wrong_;
  std::vector<std::string> findings_;
};

/// Whatever sums in an order that depends on time or place is refused, or replaced where it was not
/// asked for.
void make_repeatable(Case& c) {
  const bool attention = c.attention == "cudnn";
  if (attention || c.transport == "nccl")
    throw InputError(fmt::format("{}: its sums have no fixed order; a replay takes attention = "
                                 "portable or host and transport = mpi",
        attention ? "attention = cudnn" : "transport = nccl"));
  c.transport = "mpi";
  if (c.attention == "auto" && !kernels::on_host)
    c.attention = "portable";
}
}  // namespace

Report compare_runs(harness::CaseRunner& runner,
    Case c,
    const std::vector<std::string>& places,
    const Disturb& disturb) {
  make_repeatable(c);
  const Program program = schedule::build_valid(request_of(c));
  const int rank = runner.rank(), ranks = runner.ranks();
  std::size_t most = 0;
  for (const schedule::RankProgram& of_rank : program.ranks)
    most = std::max(most, of_rank.actions.size());

  Report report;
  std::vector<Sums> runs;  // on rank 0
  for (int wanted = 2; report.runs < wanted; ++report.runs) {
    const int place = (rank + report.runs) % ranks;
    comm::mpi::OwnComm members;
    Sums mine(c.steps * most * sums_of_action);
    engine::StepOptions options = runner.step_options();
    options.repeatable = true;
    options.fill = std::byte{0};
    if (const auto runtime = runner.make_runtime(c, &program, place, members, options))
      sum_steps(*runtime, c.steps, disturb, mine, report);

    const int count = static_cast<int>(mine.size());
    Sums& all = runs.emplace_back(rank == 0 ? mine.size() * ranks : 0);
    check(MPI_Gather(
              mine.data(), count, MPI_UINT64_T, all.data(), count, MPI_UINT64_T, 0, runner.comm()),
        "gathering check sums");
    // In the order of places:
    std::ranges::rotate(all, all.end() - std::ssize(all) / ranks * (report.runs % ranks));
    if (report.runs == 1 && runs[0] != runs[1])
      wanted = ranks == 2 ? 4 : 3;
    check(MPI_Bcast(&wanted, 1, MPI_INT, 0, runner.comm()), "agreeing on further runs");
  }

  for (std::int64_t* number : {&report.actions, &report.tensors, &report.bytes})
    check(MPI_Allreduce(MPI_IN_PLACE, number, 1, MPI_INT64_T, MPI_SUM, runner.comm()),
        "counting check sums");
  if (rank == 0 && report.runs > 2)
    report.findings = Comparison(program, ranks, runs, places).run(c.steps);
  return report;
}
}  // namespace minitaw::replay
