// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/stalls/stalls.hpp"
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <set>
#include "comm/mpi/sends.hpp"
#include "topology/system.hpp"

namespace minitaw::stalls {
namespace {
using comm::mpi::check_mpi;
using namespace std::chrono_literals;
/// Between two looks for a question, and how long answers are waited for.
constexpr auto period = 200ms, patience = 2000ms;

/// "ranks 2-3 (node 1)"
std::string name_of(const std::vector<int>& ranks, const topology::Groups& nodes) {
  std::set<int> where;
  for (const int rank : ranks)
    where.insert(nodes.group_of(rank));
  return fmt::format("{} {} ({} {})",
      ranks.size() > 1 ? "ranks" : "rank",
      topology::ranges_text(ranks),
      where.size() > 1 ? "nodes" : "node",
      topology::ranges_text(std::vector<int>(where.begin(), where.end())));
}

std::vector<int> ranks_where(std::span<const State> states, const auto& holds) {
  std::vector<int> found;
  for (int rank = 0; rank < std::ssize(states); ++rank)
    if (holds(states[rank]))
      found.push_back(rank);
  return found;
}
}  // namespace

std::string sentence(std::span<const State> states, const topology::Groups& nodes) {
  const auto named = [&](const std::vector<int>& ranks, const char* of_one, const char* of_some) {
    return fmt::format("{} {}", name_of(ranks, nodes), ranks.size() > 1 ? of_some : of_one);
  };
  const std::vector<int> silent = ranks_where(states, [](const State& s) { return !s.answers(); });
  if (!silent.empty())
    return named(silent, "does not answer", "do not answer");

  const std::vector<int> slow =
      ranks_where(states, [](const State& s) { return s.unexplained[0] != 0; });
  if (!slow.empty()) {
    const std::string more = slow.size() > 1 ? fmt::format("; {} more", slow.size() - 1) : "";
    return named({slow[0]}, states[slow[0]].unexplained.data(), "") + more;
  }

  const std::int64_t latest = std::ranges::max(states, {}, &State::cases).cases;
  const std::vector<int> late =
      ranks_where(states, [=](const State& s) { return s.cases < latest; });
  if (!late.empty())
    return named(late, "has not come as far as the others", "have not come as far as the others");
  return {};
}

Stalls::Stalls(MPI_Comm world, const topology::Groups& nodes, Signals signals)
    : nodes_(nodes),
      rank_(comm::mpi::rank_in(world)),
      signals_(std::move(signals)),
      sent_bytes_(nodes.ranks()) {
  check_mpi(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(own_.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  comm::mpi::count_sends(own_.comm, sent_bytes_, schedule::Traffic{});
  thread_ = std::jthread([this](const std::stop_token& end) { serve(end); });
}

void Stalls::between_cases() {
  const std::scoped_lock lock(mutex_);
  ++cases_;
}

void Stalls::begin_case(const harness::RunningCase& running) {
  const std::scoped_lock lock(mutex_);
  runtime_ = &running.runtime;
}

void Stalls::end_case() {
  const std::scoped_lock lock(mutex_);
  runtime_ = nullptr;
}

std::optional<std::string> Stalls::explain_stall(const std::string& report) {
  std::unique_lock lock(mutex_);
  report_ = report;
  asks_ = true;
  changed_.notify_all();
  if (!changed_.wait_for(lock, 2 * patience, [this] { return told_; }))
    return {};
  return sentence_;
}

/// The only thread that calls MPI here, without the lock: a call that does not return costs the
/// sentence alone.
void Stalls::serve(const std::stop_token& end) {
  try {
    while (!end.stop_requested()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(
          lock, end, states_.empty() ? period : period / 10, [this] { return asks_; });
      const bool asks = std::exchange(asks_, false);
      lock.unlock();
      if (rank_ != 0 && signal_ == 0 && (signal_ = signals_.caught()) != 0)
        send(0, signal, &signal_);
      for (int rank = 0; rank < nodes_.ranks(); ++rank)
        if (asks && gathers(rank))
          send(rank, question);
      receive();
      if (!states_.empty())
        conclude();
    }
  } catch (const comm::Error&) {
    // nothing can be received any more
  }
}

template <class T>
void Stalls::send(int to, Tag tag, const T* value) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int bytes = value == nullptr ? 0 : sizeof *value;
  if (MPI_Isend(value, bytes, MPI_BYTE, to, tag, own_.comm, &request) == MPI_SUCCESS)
    MPI_Request_free(&request);
}

template <class T>
T Stalls::receive(int from, Tag tag) {
  T value{};
  check_mpi(MPI_Recv(&value, sizeof value, MPI_BYTE, from, tag, own_.comm, MPI_STATUS_IGNORE),
      "MPI_Recv");
  return value;
}

void Stalls::receive() {
  for (;;) {
    int there = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, own_.comm, &there, &status), "MPI_Iprobe");
    if (there == 0)
      return;
    const int from = status.MPI_SOURCE;
    switch (status.MPI_TAG) {
    case question:
      (void)receive<char>(from, question);
      reply(from);
      break;
    case answer: states_[from] = receive<State>(from, answer); break;
    default: signals_.pass_on(from, receive<int>(from, signal));
    }
  }
}

State Stalls::state() {
  const std::scoped_lock lock(mutex_);
  engine::Standing now;
  if (runtime_ != nullptr)
    now = runtime_->executor().standing();
  State mine{.cases = cases_};
  std::string text = report_;
  if (text.empty())
    text = fmt::format(
        "rank {}: {}{}", rank_, now.lanes.empty() ? "between steps" : "in a step", now.lanes);
  now.unexplained.copy(mine.unexplained.data(), mine.unexplained.size() - 1);
  text.copy(mine.text.data(), mine.text.size() - 1);
  return mine;
}

/// Who gathers asks all; the others are told by those.
void Stalls::reply(int asker) {
  if (gathers(asker))
    send(asker, answer, &sent_.emplace_back(state()));
  if (!gathers(rank_))
    return tell("");
  if (!states_.empty())
    return;
  states_.resize(nodes_.ranks());
  asked_ = std::chrono::steady_clock::now();
  for (int rank = 0; rank < nodes_.ranks(); ++rank)
    send(rank, question);
}

/// Once all have answered, or the time is over.
void Stalls::conclude() {
  const bool waits = std::chrono::steady_clock::now() - asked_ < patience;
  if (told_ || (waits && !std::ranges::all_of(states_, &State::answers)))
    return;
  if (rank_ != 0 && states_[0].answers())
    return tell("");
  const std::string said = sentence(states_, nodes_);
  std::string text = said.empty() ? "every rank waits for others" : said;
  for (const State& state : states_)
    if (state.answers())
      text += fmt::format("\nminitaw: {}", state.text.data());
  std::fputs(fmt::format("minitaw: {}\n", text).c_str(), stderr);
  std::fflush(stderr);
  tell(said);
}

void Stalls::tell(const std::string& sentence) {
  const std::scoped_lock lock(mutex_);
  told_ = true;
  sentence_ = sentence;
  changed_.notify_all();
}
}  // namespace minitaw::stalls
