// SPDX-License-Identifier: BSD-3-Clause
#include "fake_nccl.hpp"
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <utility>
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::test {
namespace {
using Clock = std::chrono::steady_clock;
using nccl::Call;
using Kind = schedule::Kind;
constexpr auto time_limit = std::chrono::seconds(60);

std::size_t width(nccl::Type type) {
  return type == nccl::Type::fp32 ? 4 : type == nccl::Type::bf16 ? 2 : 1;
}

bool is_message(const Call& call) {
  return is_point_to_point(call.kind);
}

void add_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  add(model::Dtype::bf16,
      static_cast<std::byte*>(inout),
      static_cast<const std::byte*>(in),
      *count);
}

/// What members tell each other of a call before it may begin.
struct Header {
  int kind = 0, type = 0, root = 0, padding = 0;
  std::uint64_t count = 0, number = 0;
  friend bool operator==(const Header&, const Header&) = default;
};

std::string text(const Header& h) {
  return fmt::format(
      "call {} of kind {} type {} root {} count {}", h.number, h.kind, h.type, h.root, h.count);
}

/// Requests that are withdrawn unless they are waited for to the end.
class Requests {
public:
  Requests() = default;
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  ~Requests() {
    static std::deque<std::shared_ptr<std::deque<Header>>> left;  // to MPI, which still sends them
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL)
        continue;
      if (receives_[i])
        MPI_Cancel(&requests_[i]);
      MPI_Request_free(&requests_[i]);
      left.push_back(headers_);
    }
  }

  void send(const Header& header, int peer, int tag, MPI_Comm comm) {
    send(&headers_->emplace_back(header), sizeof(Header), peer, tag, comm);
  }

  void send(const void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm) {
    receives_.push_back(false);
    MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &requests_.emplace_back());
  }

  void receive(void* data, std::size_t bytes, int peer, int tag, MPI_Comm comm) {
    receives_.push_back(true);
    MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &requests_.emplace_back());
  }

  bool test() {
    int done = 0;
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }

private:
  std::shared_ptr<std::deque<Header>> headers_ = std::make_shared<std::deque<Header>>();
  std::deque<bool> receives_;
  std::vector<MPI_Request> requests_;
};

/// Messages may be left on an aborted communicator: it lives until MPI ends, lest a new one receive
/// them.
void free_at_the_end(MPI_Comm comm) {
  static std::vector<MPI_Comm> comms;
  static int key = MPI_KEYVAL_INVALID;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  comms.push_back(comm);
  if (key != MPI_KEYVAL_INVALID)
    return;
  const auto free_all = [](MPI_Comm, int, void*, void*) {
    for (MPI_Comm& left : comms) {
      for (;;) {
        int found = 0, bytes = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, left, &found, &message, &status);
        if (found == 0)
          break;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        std::vector<std::byte> data(static_cast<std::size_t>(bytes));
        MPI_Mrecv(data.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      }
      MPI_Comm_free(&left);
    }
    return MPI_SUCCESS;
  };
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_all, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);  // MPI_Finalize deletes it first of all
}

/// One message of a group: both sides agree on it, then the data goes.
class Passing {
public:
  Passing(const Call& call, std::uint64_t number, MPI_Comm comm) : call_(call), comm_(comm) {
    mine_ = {0, 0, 0, 0, call.count, number};
    headers_.send(mine_, call.peer, sends() ? 1 : 2, comm);
    headers_.receive(&theirs_, sizeof(Header), call.peer, sends() ? 2 : 1, comm);
  }

  bool done() {
    if (!agreed_ && headers_.test())
      begin();
    return agreed_ && data_.test();
  }

private:
  [[nodiscard]] bool sends() const { return call_.kind == Kind::send; }

  void begin() {
    if (mine_ != theirs_)
      throw Error(fmt::format("rank {} of the other side has {} where here is {}",
          call_.peer,
          text(theirs_),
          text(mine_)));
    agreed_ = true;
    const int tag = 16 + static_cast<int>(mine_.number % 1024);
    if (sends())
      data_.send(call_.from, call_.count, call_.peer, tag, comm_);
    else
      data_.receive(call_.to, call_.count, call_.peer, tag, comm_);
  }

  Call call_;
  MPI_Comm comm_;
  Header mine_, theirs_;
  bool agreed_ = false;
  Requests headers_, data_;
};
}  // namespace

class FakeCommunicator final : public nccl::Communicator {
public:
  FakeCommunicator(FakeNccl& nccl, MPI_Comm comm) : nccl_(nccl), comm_(comm) {
    if (comm_ == MPI_COMM_NULL)
      return;
    rank_ = mpi::rank_in(comm_);
    size_ = mpi::size_of(comm_);
    sent_.resize(static_cast<std::size_t>(size_));
    received_.resize(static_cast<std::size_t>(size_));
    ++nccl_.communicators;
  }

  ~FakeCommunicator() override {
    if (comm_ == MPI_COMM_NULL)
      return;
    if (closed_) {
      ++nccl_.closed;
      MPI_Comm_free(&comm_);
    } else {
      stop();
      MPI_Wait(&closing_, MPI_STATUS_IGNORE);  // all ranks began to close, or none
      free_at_the_end(comm_);
    }
  }

  bool ready() override {
    if (!nccl_.failure.empty())
      throw Error("NCCL: " + nccl_.failure);
    if (aborted_)
      throw Error("an aborted communicator was asked");
    if (comm_ == MPI_COMM_NULL || hidden_)
      return false;
    if (polls_ > 0)
      return --polls_ == 0 && ready();
    if (child_ != nullptr)
      std::exchange(child_, nullptr)->hidden_ = false;
    if (closing_ != MPI_REQUEST_NULL)
      return closed_ = over(closing_);
    nccl_.progress();
    const bool pending =
        std::ranges::count(nccl_.kernels_, this, &FakeNccl::Kernel::communicator) > 0;
    if (pending && Clock::now() - began_ > time_limit)
      throw Error(
          fmt::format("rank {} of {} has waited for the others for too long", rank_, size_));
    busy_ = busy_ && !nccl_.complete_later && pending;
    return !busy_;
  }

  std::unique_ptr<nccl::Communicator> split(int colour, int key) override {
    check_free();
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &part);
    auto child = std::make_unique<FakeCommunicator>(nccl_, part);
    child->hidden_ = true;
    child_ = child.get();
    polls_ = 3;
    return child;
  }

  void issue(const Call& call, nccl::Queue queue) override {
    check_free();
    const std::size_t part = call.count * width(call.type),
                      own = static_cast<std::size_t>(rank_) * part;
    if (call.kind == Kind::reduce_scatter)
      check_place(call.to, call.from, part, call.from + own);
    else if (call.kind == Kind::all_gather)
      check_place(call.from, call.to, part, call.to + own);
    else if (!is_message(call))
      check_place(call.from, call.to, part, call.to);
    if (call.count == 0)
      throw Error("a call about nothing");
    if (call.peer >= size_)
      throw Error(fmt::format("peer {} of {}", call.peer, size_));
    if (nccl_.depth_ == 0)
      throw Error("a call outside of a group");
    if (nccl_.in_group_ == nullptr)
      nccl_.in_group_ = this;
    if (nccl_.in_group_ != this)
      throw Error("a group of several communicators");
    nccl_.launches.push_back({call, queue});
    asked_.push_back({call, queue});
  }

  void close() override {
    check_free();
    MPI_Ibarrier(comm_, &closing_);
  }

  void abort() override {
    if (nccl_.depth_ == 0)
      throw Error("communicators are to be aborted in one group");
    stop();
  }

  /// The group has ended.
  void launch() {
    const nccl::Queue queue = asked_.front().queue;
    std::deque<Call> calls;
    for (const FakeNccl::Launch& asked : asked_) {
      if (asked.queue != queue)
        throw Error("a group uses two queues");
      if (is_message(asked.call) != is_message(asked_.front().call))
        throw Error("messages and collectives in one group");
      calls.push_back(asked.call);
    }
    if (queue_.value_or(queue) != queue)
      ++nccl_.changes_of_queue;
    queue_ = queue;
    busy_ = true;
    began_ = Clock::now();
    nccl_.kernels_.push_back({this, queue, std::move(calls)});
    asked_.clear();
  }

  void begin(const std::deque<Call>& operations) {
    operations_ = operations;
    if (!is_message(operations_.front()))
      return;
    for (const Call& call : operations_) {
      auto& numbers = call.kind == Kind::send ? sent_ : received_;
      passing_.push_back(std::make_unique<Passing>(
          call, numbers.at(static_cast<std::size_t>(call.peer))++, comm_));
    }
  }

  /// Of the kernel that has begun; returns whether it is over.
  bool progress() {
    if (!passing_.empty()) {
      bool done = true;
      for (const auto& passing : passing_)
        done &= passing->done();
      if (done)
        passing_.clear(), operations_.clear();
    } else {
      while (!operations_.empty() && (executing_ || agreed())) {
        if (!executing_)
          execute(operations_.front());
        if (!executed())
          break;
        operations_.pop_front();
      }
    }
    return operations_.empty();
  }

private:
  void check_free() const {
    if (busy_ || hidden_ || polls_ > 0 || closing_ != MPI_REQUEST_NULL)
      throw Error("a communicator was used before it was ready");
    if (aborted_ || closed_)
      throw Error("a communicator was used after its end");
  }

  /// `part` bytes at `small` must be apart from the large buffer, or where NCCL expects them.
  void check_place(const std::byte* small,
      const std::byte* large,
      std::size_t part,
      const std::byte* expected) const {
    const std::size_t whole = part * static_cast<std::size_t>(size_);
    if (small != expected && small + part > large && small < large + whole)
      throw Error("a buffer overlaps another without being in place");
  }

  /// Whether all members make the same call as the front one.
  bool agreed() {
    if (meeting_ == nullptr) {
      const Call& call = operations_.front();
      mine_ = {static_cast<int>(call.kind),
          static_cast<int>(call.type),
          call.peer,
          0,
          call.count,
          calls_++};
      theirs_.assign(static_cast<std::size_t>(size_), {});
      meeting_ = std::make_unique<Requests>();
      for (int member = 0; member < size_; ++member) {
        meeting_->send(mine_, member, 4, comm_);
        meeting_->receive(&theirs_[member], sizeof(Header), member, 4, comm_);
      }
    }
    if (!meeting_->test())
      return false;
    meeting_.reset();
    for (const Header& h : theirs_)
      if (h != mine_)
        throw Error(fmt::format("members differ: {} and {}", text(h), text(mine_)));
    return true;
  }

  /// Everybody is there, so MPI will come to an end.
  void execute(const Call& call) {
    const bool fp32 = call.type == nccl::Type::fp32;
    const MPI_Datatype type = fp32                            ? MPI_FLOAT
                              : call.type == nccl::Type::bf16 ? MPI_UINT16_T
                                                              : MPI_BYTE;
    const MPI_Op sum = fp32 ? MPI_SUM : nccl_.bf16_sum_;
    const int count = static_cast<int>(call.count);
    // MPI dislikes buffers that overlap.
    const std::size_t parts =
        call.kind == Kind::reduce_scatter ? static_cast<std::size_t>(size_) : 1;
    from_.assign(call.from, call.from + call.count * width(call.type) * parts);
    executing_ = true;
    if (call.kind == Kind::broadcast) {
      if (rank_ == call.peer)
        std::memmove(call.to, call.from, from_.size());
      MPI_Ibcast(call.to, count, type, call.peer, comm_, &request_);
    } else if (call.kind == Kind::reduce) {
      MPI_Ireduce(from_.data(),
          rank_ == call.peer ? call.to : nullptr,
          count,
          type,
          sum,
          call.peer,
          comm_,
          &request_);
    } else if (call.kind == Kind::all_gather) {
      MPI_Iallgather(from_.data(), count, type, call.to, count, type, comm_, &request_);
    } else if (call.kind == Kind::reduce_scatter) {
      MPI_Ireduce_scatter_block(from_.data(), call.to, count, type, sum, comm_, &request_);
    } else {
      MPI_Iallreduce(from_.data(), call.to, count, type, sum, comm_, &request_);
    }
  }

  bool executed() {
    executing_ = !over(request_);
    return !executing_;
  }

  static bool over(MPI_Request& request) {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

  void stop() {
    if (aborted_)
      return;
    aborted_ = true;
    std::erase_if(
        nccl_.kernels_, [this](const auto& kernel) { return kernel.communicator == this; });
    passing_.clear();
    meeting_.reset();
    ++nccl_.aborted;
  }

  FakeNccl& nccl_;
  MPI_Comm comm_;
  int rank_ = 0, size_ = 0;
  std::optional<nccl::Queue> queue_;
  bool hidden_ = false, busy_ = false, closed_ = false, aborted_ = false;
  int polls_ = 0;
  FakeCommunicator* child_ = nullptr;
  Clock::time_point began_{};
  std::vector<FakeNccl::Launch> asked_;  ///< in the group that is open
  std::deque<Call> operations_;          ///< of the kernel that has begun
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

void FakeNccl::progress() {
  std::set<const void*> held;  // communicators and queues
  for (Kernel& kernel : kernels_) {
    const bool first = !held.contains(kernel.communicator) && !held.contains(kernel.queue);
    held.insert({kernel.communicator, kernel.queue});
    if (!first)
      continue;
    if (!std::exchange(kernel.begun, true))
      kernel.communicator->begin(kernel.operations);
    kernel.over = kernel.communicator->progress();
  }
  std::erase_if(kernels_, [](const Kernel& kernel) { return kernel.over; });
}

FakeNccl::FakeNccl() {
  MPI_Op_create(add_bf16, 1, &bf16_sum_);
}

FakeNccl::~FakeNccl() {
  MPI_Op_free(&bf16_sum_);
}

nccl::UniqueId FakeNccl::unique_id() {
  nccl::UniqueId id;
  static std::atomic<int> made{0};
  id.fill(static_cast<std::byte>(++made));
  return id;
}

std::unique_ptr<nccl::Communicator> FakeNccl::init(int ranks, const nccl::UniqueId& id, int rank) {
  const MPI_Comm members = ranks == 1 ? MPI_COMM_SELF : MPI_COMM_WORLD;
  nccl::UniqueId first = id;
  MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_BYTE, 0, members);
  if (mpi::size_of(members) != ranks || mpi::rank_in(members) != rank || first != id)
    throw Error("ranks do not know each other");
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(members, &comm);
  return std::make_unique<FakeCommunicator>(*this, comm);
}

void FakeNccl::group_end() {
  if (depth_ == 0)
    throw Error("a group ends that never began");
  if (--depth_ > 0 || in_group_ == nullptr)
    return;
  ++groups;
  std::exchange(in_group_, nullptr)->launch();
}

void FakeNccl::finish() {
  for (const auto limit = Clock::now() + time_limit; !kernels_.empty(); progress())
    if (Clock::now() > limit)
      throw Error("what is on the queues comes to no end");
}
}  // namespace minitaw::comm::test
