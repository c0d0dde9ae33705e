// SPDX-License-Identifier: BSD-3-Clause
#include "harness/hang_finder.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

namespace minitaw::harness {
namespace {
using comm::mpi::check;
using namespace std::chrono_literals;

/// Between two looks for a question, and how long collectors wait for answers.
constexpr auto period = 200ms, patience = 2000ms;

/// Rank 0, the first ranks of up to three other nodes, and others where there are fewer.
std::vector<int> choose_collectors(const topology::Groups& nodes) {
  std::set<int> chosen;
  for (int k = 0; k < 4; ++k) chosen.insert(nodes.first(k * nodes.count() / 4));
  for (int r = 0; r < nodes.ranks() && chosen.size() < 4; ++r) chosen.insert(r);
  return {chosen.begin(), chosen.end()};
}
}  // namespace

HangFinder::HangFinder(MPI_Comm world, const topology::Groups& nodes)
    : nodes_(nodes), rank_(comm::mpi::rank_in(world)), collectors_(choose_collectors(nodes)) {
  check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(own_.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  thread_ = std::jthread([this](const std::stop_token& end) { serve(end); });
}

bool HangFinder::is_collector() const { return std::ranges::find(collectors_, rank_) != collectors_.end(); }

void HangFinder::next_case() {
  const std::scoped_lock lock(mutex_);
  ++case_;
  last_ = 0;
}

void HangFinder::watch(const engine::Runtime* runtime) {
  const std::scoped_lock lock(mutex_);
  if (runtime == nullptr) last_ = runtime_->executor().state().position;
  runtime_ = runtime;
}

schedule::RankState HangFinder::own_state() {
  const std::scoped_lock lock(mutex_);
  schedule::RankState state{.position = last_};
  if (runtime_ != nullptr) state = runtime_->executor().state();
  state.position += case_ << 32;
  return state;
}

std::string HangFinder::find() {
  std::unique_lock lock(mutex_);
  hangs_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, 2 * patience, [this] { return said_; });
  return sentence_;
}

/// The only thread that calls MPI here, without the lock: a call that does not return costs the sentence, and
/// nothing else.
void HangFinder::serve(const std::stop_token& end) {
  try {
    for (bool told = false; !end.stop_requested(); answer()) {
      bool tell = false;
      {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, end, states_.empty() ? period : period / 10, [&] { return hangs_ && !told; });
        tell = hangs_ && !std::exchange(told, hangs_);
      }
      for (const int to : collectors_)
        if (tell) send(to, Tag::hangs);
      if (!states_.empty()) conclude();
    }
  } catch (const comm::Error&) {
    // nothing can be received any more
  }
}

void HangFinder::send(int to, Tag tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  sent_.push_back(own_state());
  if (MPI_Isend(&sent_.back(), sizeof sent_.back(), MPI_BYTE, to, static_cast<int>(tag), own_.comm, &request) ==
      MPI_SUCCESS)
    MPI_Request_free(&request);
}

void HangFinder::answer() {
  for (;;) {
    int there = 0;
    MPI_Status from;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, own_.comm, &there, &from), "MPI_Iprobe");
    if (there == 0) return;
    schedule::RankState theirs;
    check(MPI_Recv(&theirs, sizeof theirs, MPI_BYTE, from.MPI_SOURCE, from.MPI_TAG, own_.comm, MPI_STATUS_IGNORE),
        "MPI_Recv");
    const auto tag = static_cast<Tag>(from.MPI_TAG);
    if (tag == Tag::ask) send(from.MPI_SOURCE, Tag::state);
    if (tag == Tag::hangs || tag == Tag::ask) collect();
    if (tag == Tag::state) states_[from.MPI_SOURCE] = theirs;
    if (tag == Tag::said) end({});
  }
}

void HangFinder::collect() {
  if (!is_collector() || !states_.empty()) return;
  states_.resize(nodes_.ranks());
  asked_ = std::chrono::steady_clock::now();
  for (int r = 0; r < nodes_.ranks(); ++r) send(r, Tag::ask);
}

/// Once all have answered or the time is over; the lowest collector that has answered speaks.
void HangFinder::conclude() {
  if (concluded_) return;
  const auto answers = [this](int rank) { return states_[rank].answers(); };
  if (!std::ranges::all_of(states_, &schedule::RankState::answers) &&
      std::chrono::steady_clock::now() - asked_ < patience)
    return;
  concluded_ = true;
  if (*std::ranges::find_if(collectors_, answers) != rank_) return;  // this rank is one that answers
  end([this] {
    const schedule::Program program = runtime_ == nullptr ? schedule::Program{} : runtime_->program();
    sentence_ = schedule::find_root(program, states_, nodes_).sentence;
    if (!sentence_.empty()) fmt::print(stderr, "minitaw: {}\n", sentence_);
    std::fflush(stderr);
  });
  for (int r = 0; r < nodes_.ranks(); ++r)
    if (answers(r) && r != rank_) send(r, Tag::said);
}

void HangFinder::end(const std::function<void()>& say) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(said_, true)) return;
    if (say) say();
  }
  changed_.notify_all();
}
}  // namespace minitaw::harness
