#include "engine/lane.hpp"

#include <algorithm>
#include <thread>

#include "engine/queue.hpp"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

namespace minitaw::engine {

namespace {

/// On a queue that may not return before its work is over.
void complete(const comm::Transport::Started& transfer) {
  while (transfer != nullptr && !transfer->done())
    if (!transfer->advance()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

/// What was over when it started.
class Over final : public comm::Operation {
public:
  bool advance() override { return false; }
  [[nodiscard]] bool done() const override { return true; }
};

}  // namespace

Lane::Lane(const schedule::RankProgram& program, schedule::Lane lane, Progress& progress,
           const Queues& queues, Start start, Idle idle)
    : lane_(lane), progress_(progress), queues_(queues), start_(std::move(start)), idle_(std::move(idle)) {
  for (const int i : schedule::actions_of(program, lane)) {
    const schedule::Action& action = program.actions[i];
    actions_.push_back({i, &action, action.waits});
    actions_.back().waits[static_cast<std::size_t>(lane)] = 0;  // its own lane is in order
  }
}

void Lane::begin_step() {
  next_ = 0;
  opened_ = false;
  under_way_.clear();
  waited_.fill(0);
  queue().begin_step();
}

bool Lane::ready() const {
  const Counts& waits = actions_[next_].waits;
  for (int l = 0; l < schedule::lanes; ++l)
    if (progress_.count(static_cast<schedule::Lane>(l)) < waits[l]) return false;
  return true;
}

void Lane::execute_next() {
  const int number = static_cast<int>(next_);
  const Played& next = actions_[next_];
  queue().open(number);
  for (int l = 0; l < schedule::lanes; ++l)
    if (next.waits[l] > waited_[l]) wait_for(l, next.waits[l]);
  queue().run(number, [this, &next] { complete(start_(*next.action)); });
  progress_.submitted(lane_, static_cast<int>(++next_));
}

bool Lane::advance() {
  bool moved = false;
  for (const UnderWay& u : under_way_) moved = (!u.transfer->done() && u.transfer->advance()) || moved;
  while (finish_first()) moved = true;
  while (start_next()) moved = true;
  return moved;
}

bool Lane::finish_first() {
  if (under_way_.empty() || !under_way_.front().transfer->done()) return false;
  const int number = under_way_.front().number;
  under_way_.pop_front();
  fenced().end(number);
  progress_.submitted(lane_, number + 1);
  return true;
}

bool Lane::start_next() {
  if (next_ == actions_.size() || !may_join()) return false;
  const int number = static_cast<int>(next_);
  if (!std::exchange(opened_, true)) queue().open(number);
  if (!waits_complete()) return false;
  fenced().begin(number);
  comm::Transport::Started transfer = start_(*actions_[next_].action);
  ++next_;
  opened_ = false;
  if (transfer != nullptr) {
    under_way_.push_back({number, std::move(transfer)});
  } else if (under_way_.empty()) {
    fenced().end(number);
    progress_.submitted(lane_, number + 1);
  } else {
    under_way_.push_back({number, std::make_unique<Over>()});  // counts as finished behind those before it
  }
  return true;
}

/// Messages of one direction may be under way together, but not two into one slot: what nobody reads (WeiPipe
/// has such weights) may arrive behind what overwrites it. All else waits for what is in front of it.
bool Lane::may_join() const {
  const schedule::Action& next = *actions_[next_].action;
  return under_way_.empty() || (is_point_to_point(next.kind) && under_way_.size() < messages_ &&
                                std::ranges::all_of(under_way_, [&](const UnderWay& u) {
                                  const auto& before = *actions_[static_cast<std::size_t>(u.number)].action;
                                  return before.kind == next.kind && (next.kind == schedule::Kind::send ||
                                                                      before.slots[0] != next.slots[0]);
                                }));
}

bool Lane::waits_complete() {
  const Counts& waits = actions_[next_].waits;
  for (int l = 0; l < schedule::lanes; ++l) {
    if (waits[l] <= waited_[l]) continue;
    if (!queues_[l]->is_complete(waits[l] - 1)) return false;
    waited_[l] = waits[l];
  }
  return true;
}

void Lane::wait_for(int lane, int count) {
  const auto other = static_cast<schedule::Lane>(lane);
  const bool idle = progress_.count(other) < count;
  if (idle) idle_(true);
  progress_.wait(other, count);
  queue().after(*queues_[lane], count - 1);
  if (idle) idle_(false);
  waited_[lane] = count;
}

const schedule::Action* Lane::pending() const {
  const auto at = static_cast<std::size_t>(queue().completed());
  return at < actions_.size() ? actions_[at].action : nullptr;
}

void Lane::read(std::vector<Span>& spans) const {
  for (std::size_t i = 0; i < actions_.size(); ++i)
    spans[static_cast<std::size_t>(actions_[i].index)] = queue().span(static_cast<int>(i));
}

namespace {

/// Linux lengthens sleeps by 50 microseconds to save wake-ups: more than twice what the shortest waits ask
/// for, and a collective waits for every piece.
void sleep_exactly() {
#if defined(__linux__)
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // nanoseconds
#endif
}

}  // namespace

CommunicationThread::CommunicationThread(std::vector<Lane*> lanes, Progress& progress,
                                         const comm::mpi::WaitPolicy& policy)
    : lanes_(std::move(lanes)), progress_(progress), policy_(policy) {
  thread_ = std::thread([this] { loop(); });
}

CommunicationThread::~CommunicationThread() {
  ordered_.store(-1);
  ordered_.notify_one();
  thread_.join();
}

void CommunicationThread::begin_step() {
  ordered_.fetch_add(1);
  ordered_.notify_one();
}

void CommunicationThread::wait_until_idle() const {
  const int ordered = ordered_.load();
  for (int executed = executed_.load(); executed != ordered; executed = executed_.load())
    executed_.wait(executed);
}

void CommunicationThread::loop() {
  use_device();
  sleep_exactly();
  for (int executed = 0;; ++executed) {
    executed_.store(executed);
    executed_.notify_all();
    ordered_.wait(executed);
    if (ordered_.load() < 0) return;
    try {
      drive();
    } catch (const Stopped&) {
      // another lane failed first and has said why
    } catch (...) {
      progress_.fail(std::current_exception());
    }
  }
}

void CommunicationThread::drive() {
  comm::mpi::Backoff backoff(policy_, &low_latency_);
  while (!std::ranges::all_of(lanes_, &Lane::done)) {
    bool moved = false;
    for (Lane* lane : lanes_) moved = lane->advance() || moved;
    progress_.check();
    if (moved) backoff = comm::mpi::Backoff(policy_, &low_latency_);
    else backoff.once();
  }
}

}  // namespace minitaw::engine
