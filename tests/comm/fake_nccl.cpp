#include "fake_nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <set>

#include "base/bf16.hpp"
#include "comm/transport.hpp"
#include "fake_messages.hpp"

namespace minitaw::comm::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto time_limit = std::chrono::seconds(60);

std::size_t width(nccl::Type type) { return type == nccl::Type::fp32 ? 4 : type == nccl::Type::bf16 ? 2 : 1; }

bool is_message(const Operation& op) { return op.asked == Asked::send || op.asked == Asked::receive; }

void add_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  auto* const total = static_cast<Bf16*>(inout);
  const auto* const other = static_cast<const Bf16*>(in);
  for (int i = 0; i < *count; ++i) total[i] = to_bf16(to_float(total[i]) + to_float(other[i]));
}

}  // namespace

class FakeNccl::State {
public:
  MPI_Op bf16_sum = MPI_OP_NULL;
  int depth = 0;
  std::string failure;
  Seen seen;
  bool later = false;
  /// Those of the group that is open, in the order in which they were made.
  std::vector<class Communicator*> in_group;

  /// A communicator's part of a group. It begins when those before it on the communicator and on its queue
  /// are over.
  struct Kernel {
    class Communicator* communicator;
    nccl::Queue queue;
    std::deque<Operation> operations{};
    bool begun = false, over = false;
  };
  std::deque<Kernel> kernels;  ///< in order of issue

  [[nodiscard]] bool pending(const class Communicator* communicator) const {
    return std::ranges::any_of(kernels, [&](const Kernel& k) { return k.communicator == communicator; });
  }
  /// What can be done without waiting.
  void progress();
};

namespace {

/// One message of a group: both sides agree on it, then the data goes.
class Passing {
public:
  Passing(const Operation& op, std::uint64_t number, MPI_Comm comm) : op_(op), comm_(comm) {
    mine_ = {0, 0, 0, 0, op.count, number};
    const bool sends = op.asked == Asked::send;
    headers_.send(mine_, op.peer, sends ? 1 : 2, comm);
    headers_.receive(&theirs_, sizeof(Header), op.peer, sends ? 2 : 1, comm);
  }
  bool done() {
    if (!agreed_ && headers_.test()) begin();
    return agreed_ && data_.test();
  }

private:
  void begin() {
    if (mine_ != theirs_)
      throw Error(fmt::format("rank {} of the other side has {} where here is {}", op_.peer, text(theirs_),
                              text(mine_)));
    agreed_ = true;
    if (op_.asked == Asked::send) data_.send(op_.from, op_.count, op_.peer, data_tag(), comm_);
    else data_.receive(op_.to, op_.count, op_.peer, data_tag(), comm_);
  }
  [[nodiscard]] int data_tag() const { return 16 + static_cast<int>(mine_.number % 1024); }

  Operation op_;
  MPI_Comm comm_;
  Header mine_, theirs_;
  bool agreed_ = false;
  Requests headers_, data_;
};

}  // namespace

class Communicator final : public nccl::Communicator {
public:
  Communicator(std::shared_ptr<FakeNccl::State> state, MPI_Comm comm)
      : state_(std::move(state)), comm_(comm) {
    if (comm_ == MPI_COMM_NULL) return;
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    sent_.resize(static_cast<std::size_t>(size_));
    received_.resize(static_cast<std::size_t>(size_));
    number_ = ++state_->seen.communicators;
  }
  ~Communicator() override {
    if (comm_ == MPI_COMM_NULL) return;
    if (closed_) {
      ++state_->seen.closed;
      MPI_Comm_free(&comm_);
    } else {
      stop();
      free_at_the_end(comm_);
    }
  }

  bool ready() override {
    if (!state_->failure.empty()) throw Error("NCCL: " + state_->failure);
    if (aborted_) throw Error("an aborted communicator was asked");
    if (comm_ == MPI_COMM_NULL || hidden_) return false;
    if (polls_ > 0) return --polls_ == 0 && ready();
    if (child_ != nullptr) child_->hidden_ = false, child_ = nullptr;
    if (closing_ != MPI_REQUEST_NULL) return closing_done();
    state_->progress();
    if (state_->pending(this) && Clock::now() - began_ > time_limit)
      throw Error(fmt::format("rank {} of {} has waited for the others for too long", rank_, size_));
    busy_ = busy_ && !state_->later && state_->pending(this);
    return !busy_;
  }

  std::unique_ptr<nccl::Communicator> split(int colour, int key) override {
    check_free();
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &part);
    auto child = std::make_unique<Communicator>(state_, part);
    child->hidden_ = true;
    child_ = child.get();
    polls_ = 3;
    return child;
  }

  void send(const std::byte* data, std::size_t bytes, int peer, nccl::Queue queue) override {
    ask({Asked::send, data, nullptr, bytes, nccl::Type::bytes, peer, queue});
  }
  void receive(std::byte* data, std::size_t bytes, int peer, nccl::Queue queue) override {
    ask({Asked::receive, nullptr, data, bytes, nccl::Type::bytes, peer, queue});
  }
  void broadcast(const std::byte* from, std::byte* to, std::size_t count, nccl::Type type, int root,
                 nccl::Queue queue) override {
    check_place(from, to, count * width(type), to);
    ask({Asked::broadcast, from, to, count, type, root, queue});
  }
  void reduce(const std::byte* from, std::byte* to, std::size_t count, nccl::Type type, int root,
              nccl::Queue queue) override {
    check_place(from, to, count * width(type), to);
    ask({Asked::reduce, from, to, count, type, root, queue});
  }
  void all_gather(const std::byte* from, std::byte* to, std::size_t each, nccl::Type type,
                  nccl::Queue queue) override {
    check_place(from, to, each * width(type), to + slice_bytes(each, type));
    ask({Asked::all_gather, from, to, each, type, -1, queue});
  }
  void reduce_scatter(const std::byte* from, std::byte* to, std::size_t each, nccl::Type type,
                      nccl::Queue queue) override {
    check_place(to, from, each * width(type), from + slice_bytes(each, type));
    ask({Asked::reduce_scatter, from, to, each, type, -1, queue});
  }
  void all_reduce(const std::byte* from, std::byte* to, std::size_t count, nccl::Type type,
                  nccl::Queue queue) override {
    check_place(from, to, count * width(type), to);
    ask({Asked::all_reduce, from, to, count, type, -1, queue});
  }

  void close() override {
    check_free();
    MPI_Ibarrier(comm_, &closing_);
  }
  void abort() override {
    if (state_->depth == 0) throw Error("communicators are to be aborted in one group");
    stop();
  }

  /// The group has ended.
  void issue() {
    const auto messages = std::ranges::count_if(asked_, is_message);
    if (messages != 0 && messages != std::ssize(asked_)) throw Error("messages and collectives in one group");
    const nccl::Queue queue = asked_.front().queue;
    if (std::ranges::count(asked_, queue, &Operation::queue) != std::ssize(asked_))
      throw Error("a group uses two queues");
    if (queue_.value_or(queue) != queue) ++state_->seen.changes_of_queue;
    queue_ = queue;
    busy_ = true;
    began_ = Clock::now();
    state_->kernels.push_back({this, queue, {asked_.begin(), asked_.end()}});
    asked_.clear();
  }

  void begin(const std::deque<Operation>& operations) {
    operations_ = operations;
    if (!is_message(operations_.front())) return;
    for (const Operation& op : operations_) {
      auto& numbers = op.asked == Asked::send ? sent_ : received_;
      passing_.push_back(
          std::make_unique<Passing>(op, numbers.at(static_cast<std::size_t>(op.peer))++, comm_));
    }
  }
  /// Of the kernel that has begun; returns whether it is over.
  bool progress() {
    if (!passing_.empty()) {
      bool done = true;
      for (const auto& passing : passing_) done &= passing->done();
      if (done) passing_.clear(), operations_.clear();
    } else {
      while (!operations_.empty() && (executing_ || agreed())) {
        if (!executing_) execute(operations_.front());
        if (!executed()) break;
        operations_.pop_front();
      }
    }
    return operations_.empty();
  }
  [[nodiscard]] int number() const { return number_; }

private:
  [[nodiscard]] std::size_t slice_bytes(std::size_t each, nccl::Type type) const {
    return static_cast<std::size_t>(rank_) * each * width(type);
  }

  void check_free() const {
    if (busy_ || hidden_ || polls_ > 0 || closing_ != MPI_REQUEST_NULL)
      throw Error("a communicator was used before it was ready");
    if (aborted_ || closed_) throw Error("a communicator was used after its end");
  }

  /// `part` bytes at `small` must be apart from the large buffer, or where NCCL expects them.
  void check_place(const std::byte* small, const std::byte* large, std::size_t part,
                   const std::byte* expected) const {
    const std::size_t whole = part * static_cast<std::size_t>(size_);
    if (small != expected && small + part > large && small < large + whole)
      throw Error("a buffer overlaps another without being in place");
  }

  void ask(const Operation& op) {
    check_free();
    if (op.count == 0) throw Error("a call about nothing");
    if (op.peer >= size_) throw Error(fmt::format("peer {} of {}", op.peer, size_));
    if (state_->depth == 0) throw Error("a call outside of a group");
    if (std::ranges::count(state_->in_group, this) == 0) state_->in_group.push_back(this);
    state_->seen.launches.push_back({size_, op});
    asked_.push_back(op);
  }

  /// Whether all members make the same call as the front one.
  bool agreed() {
    const Operation& op = operations_.front();
    if (meeting_ == nullptr) {
      mine_ = {static_cast<int>(op.asked), static_cast<int>(op.type), op.peer, 0, op.count, calls_++};
      theirs_.assign(static_cast<std::size_t>(size_), {});
      meeting_ = std::make_unique<Requests>();
      for (int member = 0; member < size_; ++member) {
        meeting_->send(mine_, member, 4, comm_);
        meeting_->receive(&theirs_[static_cast<std::size_t>(member)], sizeof(Header), member, 4, comm_);
      }
    }
    if (!meeting_->test()) return false;
    meeting_.reset();
    for (const Header& h : theirs_)
      if (h != mine_) throw Error(fmt::format("members differ: {} and {}", text(h), text(mine_)));
    return true;
  }

  /// Everybody is there, so MPI will come to an end.
  void execute(const Operation& op) {
    const bool fp32 = op.type == nccl::Type::fp32;
    const MPI_Datatype type = fp32 ? MPI_FLOAT : op.type == nccl::Type::bf16 ? MPI_UINT16_T : MPI_BYTE;
    const MPI_Op sum = fp32 ? MPI_SUM : state_->bf16_sum;
    const int count = static_cast<int>(op.count);
    // MPI dislikes buffers that overlap.
    const std::size_t parts = op.asked == Asked::reduce_scatter ? static_cast<std::size_t>(size_) : 1;
    from_.assign(op.from, op.from + op.count * width(op.type) * parts);
    executing_ = true;
    switch (op.asked) {
    case Asked::broadcast:
      if (rank_ == op.peer) std::memmove(op.to, op.from, from_.size());
      MPI_Ibcast(op.to, count, type, op.peer, comm_, &request_);
      break;
    case Asked::reduce:
      MPI_Ireduce(from_.data(), rank_ == op.peer ? op.to : nullptr, count, type, sum, op.peer, comm_,
                  &request_);
      break;
    case Asked::all_gather:
      MPI_Iallgather(from_.data(), count, type, op.to, count, type, comm_, &request_);
      break;
    case Asked::reduce_scatter:
      MPI_Ireduce_scatter_block(from_.data(), op.to, count, type, sum, comm_, &request_);
      break;
    default:
      MPI_Iallreduce(from_.data(), op.to, count, type, sum, comm_, &request_);
    }
  }

  bool executed() {
    int done = 0;
    MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
    executing_ = done == 0;
    return !executing_;
  }

  bool closing_done() {
    int done = 0;
    MPI_Test(&closing_, &done, MPI_STATUS_IGNORE);
    closed_ = done != 0;
    return closed_;
  }

  void stop() {
    if (aborted_) return;
    aborted_ = true;
    std::erase_if(state_->kernels, [this](const auto& kernel) { return kernel.communicator == this; });
    passing_.clear();
    meeting_.reset();
    ++state_->seen.aborted;
  }

  std::shared_ptr<FakeNccl::State> state_;
  MPI_Comm comm_;
  int rank_ = 0, size_ = 0, number_ = 0;
  std::optional<nccl::Queue> queue_;
  bool hidden_ = false, busy_ = false, closed_ = false, aborted_ = false;
  int polls_ = 0;
  Communicator* child_ = nullptr;
  Clock::time_point began_{};
  std::vector<Operation> asked_;      ///< in the group that is open
  std::deque<Operation> operations_;  ///< of the kernel that has begun
  std::vector<std::unique_ptr<Passing>> passing_;
  std::vector<std::uint64_t> sent_, received_;
  std::uint64_t calls_ = 0;
  Header mine_;
  std::vector<Header> theirs_;
  std::unique_ptr<Requests> meeting_;
  bool executing_ = false;
  std::vector<std::byte> from_;
  MPI_Request request_ = MPI_REQUEST_NULL, closing_ = MPI_REQUEST_NULL;
};

void FakeNccl::State::progress() {
  std::set<const void*> held;  // communicators and queues
  for (Kernel& kernel : kernels) {
    const bool first = !held.contains(kernel.communicator) && !held.contains(kernel.queue);
    held.insert({kernel.communicator, kernel.queue});
    if (!first) continue;
    if (!std::exchange(kernel.begun, true)) kernel.communicator->begin(kernel.operations);
    kernel.over = kernel.communicator->progress();
  }
  std::erase_if(kernels, [](const Kernel& kernel) { return kernel.over; });
}

FakeNccl::FakeNccl() : state_(std::make_shared<State>()) { MPI_Op_create(add_bf16, 1, &state_->bf16_sum); }

FakeNccl::~FakeNccl() { MPI_Op_free(&state_->bf16_sum); }

nccl::UniqueId FakeNccl::unique_id() {
  nccl::UniqueId id;
  static std::atomic<int> made{0};
  id.fill(static_cast<std::byte>(++made));
  return id;
}

std::unique_ptr<nccl::Communicator> FakeNccl::init(int ranks, const nccl::UniqueId& id, int rank) {
  const MPI_Comm members = ranks == 1 ? MPI_COMM_SELF : MPI_COMM_WORLD;
  int size = 0, here = 0;
  MPI_Comm_size(members, &size);
  MPI_Comm_rank(members, &here);
  nccl::UniqueId first = id;
  MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_BYTE, 0, members);
  if (size != ranks || here != rank || first != id) throw Error("ranks do not know each other");
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(members, &comm);
  return std::make_unique<Communicator>(state_, comm);
}

void FakeNccl::group_start() { ++state_->depth; }

void FakeNccl::group_end() {
  if (state_->depth == 0) throw Error("a group ends that never began");
  if (--state_->depth > 0) return;
  if (state_->in_group.empty()) return;
  ++state_->seen.groups;
  std::ranges::sort(state_->in_group, {}, &Communicator::number);
  for (Communicator* const used : std::exchange(state_->in_group, {})) used->issue();
}

void FakeNccl::complete_later() { state_->later = true; }

void FakeNccl::finish() {
  for (const auto limit = Clock::now() + time_limit; !state_->kernels.empty(); state_->progress())
    if (Clock::now() > limit) throw Error("what is on the queues comes to no end");
}

void FakeNccl::fail(const std::string& words) { state_->failure = words; }

const FakeNccl::Seen& FakeNccl::seen() const { return state_->seen; }

}  // namespace minitaw::comm::test
