// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/hang/hang_finder.hpp"
#include <algorithm>
#include <cstdio>

namespace minitaw::hang {
namespace {
using comm::mpi::check, comm::mpi::rank_in, schedule::RankState;
using namespace std::chrono_literals;
/// Between two looks for a question, and how long collectors wait for answers.
constexpr auto period = 200ms, patience = 2000ms;
}  // namespace

HangFinder::HangFinder(MPI_Comm world, const topology::Groups& nodes)
    : nodes_(nodes),
      rank_(rank_in(world)) {
  // The first ranks of up to four nodes, and others where there are fewer: rank 0 is one of them.
  for (int k = 0; k < 4; ++k)
    collectors_.insert(nodes.first(k * nodes.count() / 4));
  for (int r = 0; r < nodes.ranks() && collectors_.size() < 4; ++r)
    collectors_.insert(r);
  check(MPI_Comm_dup(world, &own_.comm), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(own_.comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  thread_ = std::jthread([this](const std::stop_token& end) { serve(end); });
}

void HangFinder::between_cases() {
  const std::scoped_lock lock(mutex_);
  position_ = ((position_ >> 32) + 1) << 32;
}

/// The runtime executes the steps of this rank as long as this lives.
class HangFinder::Watch final : public harness::CaseListener {
public:
  Watch(HangFinder& finder, const engine::Runtime& runtime) : finder_(finder) {
    const std::scoped_lock lock(finder_.mutex_);
    finder_.runtime_ = &runtime;
  }

  ~Watch() override {
    const std::scoped_lock lock(finder_.mutex_);
    finder_.position_ += finder_.runtime_->executor().state().position;
    finder_.runtime_ = nullptr;
  }

  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

private:
  HangFinder& finder_;
};

std::unique_ptr<harness::CaseListener> HangFinder::listen(const harness::RunningCase& running) {
  return std::make_unique<Watch>(*this, running.runtime);
}

std::string HangFinder::explain_stall() {
  std::unique_lock lock(mutex_);
  asks_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, 2 * patience, [this] { return said_; });
  return sentence_;
}

/// The only thread that calls MPI here, without the lock: a call that does not return costs the
/// sentence alone.
void HangFinder::serve(const std::stop_token& end) {
  try {
    while (!end.stop_requested()) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(
          lock, end, states_.empty() ? period : period / 10, [this] { return asks_; });
      const bool asks = std::exchange(asks_, false);
      lock.unlock();
      for (const int to : collectors_)
        if (asks)
          send(to, Tag::ask);
      if (!states_.empty() && !said_)
        conclude();
      answer();
    }
  } catch (const comm::Error&) {
    // nothing can be received any more
  }
}

void HangFinder::send(int to, Tag tag) {
  std::unique_lock lock(mutex_);
  RankState& state = sent_.emplace_back(
      runtime_ == nullptr ? RankState{.position = 0} : runtime_->executor().state());
  state.position += position_;
  lock.unlock();
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Isend(&state, sizeof state, MPI_BYTE, to, static_cast<int>(tag), own_.comm, &request) ==
      MPI_SUCCESS)
    MPI_Request_free(&request);
}

void HangFinder::answer() {
  for (;;) {
    int there = 0;
    MPI_Status from;
    check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, own_.comm, &there, &from), "MPI_Iprobe");
    if (there == 0)
      return;
    RankState theirs;
    check(MPI_Recv(&theirs,
              sizeof theirs,
              MPI_BYTE,
              from.MPI_SOURCE,
              from.MPI_TAG,
              own_.comm,
              MPI_STATUS_IGNORE),
        "MPI_Recv");
    const auto tag = static_cast<Tag>(from.MPI_TAG);
    if (tag == Tag::ask)
      send(from.MPI_SOURCE, Tag::state);
    if (tag == Tag::ask)
      collect();
    if (tag == Tag::state && !states_.empty())
      states_[from.MPI_SOURCE] = theirs;
    if (tag == Tag::said)
      end(false);
  }
}

/// A collector that is asked asks all.
void HangFinder::collect() {
  if (!collectors_.contains(rank_) || !states_.empty())
    return;
  states_.resize(nodes_.ranks());
  asked_ = std::chrono::steady_clock::now();
  for (int r = 0; r < nodes_.ranks(); ++r)
    send(r, Tag::ask);
}

/// Once all have answered or the time is over; the lowest collector that has answered speaks.
void HangFinder::conclude() {
  const bool waits = std::chrono::steady_clock::now() - asked_ < patience;
  if (waits && !std::ranges::all_of(states_, &RankState::answers))
    return;
  const auto answers = [this](int rank) { return states_[rank].answers(); };
  if (*std::ranges::find_if(collectors_, answers) != rank_)
    return;  // this rank is one that answers
  end(true);
  for (int r = 0; r < nodes_.ranks(); ++r)
    if (answers(r) && r != rank_)
      send(r, Tag::said);
}

void HangFinder::end(bool speaks) {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(said_, true))
    return;
  if (speaks)
    sentence_ = find_culprits(
        runtime_ == nullptr ? schedule::Program{} : runtime_->program(), states_, nodes_)
                    .sentence;
  if (!sentence_.empty())
    fmt::print(stderr, "minitaw: {}\n", sentence_);
  std::fflush(stderr);
  changed_.notify_all();
}
}  // namespace minitaw::hang
