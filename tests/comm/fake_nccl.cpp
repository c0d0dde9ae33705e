// SPDX-License-Identifier: BSD-3-Clause
#include "fake_nccl.hpp"
#include <chrono>
#include <cstring>
#include <deque>
#include <fmt/ranges.h>
#include <set>
#include <thread>
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::test {
namespace {
using Clock = std::chrono::steady_clock;
using nccl::Call, nccl::Type, schedule::Kind;

std::size_t width(Type type) {
  return type == Type::fp32 ? 4 : type == Type::bf16 ? 2 : 1;
}

/// What members tell each other of a call, in front of their data: kind, type, root, count.
using Header = std::array<std::uint64_t, 4>;

/// A call that has begun. It is done when all whom it concerns have taken this rank's data, and it
/// has theirs.
class Operation {
public:
  /// `number`: of the call in its group.
  Operation(const Call& call, int number, MPI_Comm comm)
      : call_(call),
        comm_(comm),
        tag_(is_point_to_point(call.kind) ? 0 : number),
        own_(static_cast<std::size_t>(mpi::rank_in(comm))),
        size_(static_cast<std::size_t>(mpi::size_of(comm))),
        share_(call.count * width(call.type)) {
    const bool message = is_point_to_point(call.kind);
    const auto number_of = [](auto value) { return static_cast<std::uint64_t>(value); };
    header_ = {number_of(message ? Kind::send : call.kind),
        number_of(call.type),
        message ? 0 : number_of(call.peer),
        call.count};
    for (int member = 0; member < static_cast<int>(size_); ++member)
      if (!message || member == call.peer)
        missing_.push_back(member);
    if (call.kind == Kind::recv)
      return;
    const std::size_t bytes = call.kind == Kind::reduce_scatter ? share_ * size_ : share_;
    sent_.resize(sizeof header_ + bytes);
    std::memcpy(sent_.data(), header_.data(), sizeof header_);
    std::memcpy(sent_.data() + sizeof header_, call.from, bytes);
    for (const int member : missing_)
      MPI_Issend(sent_.data(),
          static_cast<int>(sent_.size()),
          MPI_BYTE,
          member,
          tag_,
          comm,
          &sends_.emplace_back());
    if (call.kind == Kind::send)
      missing_.clear();
  }

  bool done() {
    for (; !missing_.empty(); missing_.pop_front()) {
      int found = 0, bytes = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      MPI_Improbe(missing_.front(), tag_, comm_, &found, &message, &status);
      if (found == 0)
        return false;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      std::vector<std::byte>& data = received_.emplace_back(bytes);
      MPI_Mrecv(data.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      Header theirs;
      std::memcpy(theirs.data(), data.data(), sizeof theirs);
      if (theirs != header_)
        throw Error(fmt::format("members differ: {} and {}", theirs, header_));
      data.erase(data.begin(), data.begin() + sizeof theirs);
    }
    int sent = 0;
    MPI_Testall(static_cast<int>(sends_.size()), sends_.data(), &sent, MPI_STATUSES_IGNORE);
    if (sent != 0)
      finish();
    return sent != 0;
  }

private:
  void finish() {
    const auto put = [&](std::size_t at, const std::byte* from) {
      std::memcpy(call_.to + at * share_, from, share_);
    };
    if (call_.kind == Kind::recv)
      return put(0, received_[0].data());
    if (call_.kind == Kind::broadcast)
      return put(0, received_.at(call_.peer).data());
    if (call_.kind == Kind::all_gather)
      for (std::size_t member = 0; member < size_; ++member)
        put(member, received_[member].data());
    if (call_.kind == Kind::send || call_.kind == Kind::all_gather ||
        (call_.kind == Kind::reduce && std::cmp_not_equal(own_, call_.peer)))
      return;
    const std::size_t begin = call_.kind == Kind::reduce_scatter ? own_ * share_ : 0;
    std::byte* const sum = received_[0].data() + begin;
    for (std::size_t member = 1; member < size_; ++member)
      add(call_.type == Type::fp32 ? model::Dtype::fp32 : model::Dtype::bf16,
          sum,
          received_[member].data() + begin,
          static_cast<std::int64_t>(call_.count));
    put(0, sum);
  }

  Call call_;
  MPI_Comm comm_;
  int tag_;
  std::size_t own_, size_, share_;  ///< share in bytes
  Header header_{};
  std::vector<std::byte> sent_;
  std::vector<MPI_Request> sends_;
  std::deque<int> missing_;                       ///< whose data have not come
  std::vector<std::vector<std::byte>> received_;  ///< by member, or the one message
};
}  // namespace

/// A group of calls of one communicator. Begins when those before it on communicator and queue are
/// over.
struct FakeNccl::Kernel {
  std::vector<Launch> calls;
  Clock::time_point issued = Clock::now();
  std::list<Operation> under_way{};
  bool begun = false, over = false;
};

class FakeCommunicator final : public nccl::Communicator {
public:
  FakeCommunicator(FakeNccl& nccl, MPI_Comm made) : nccl_(nccl), comm_(made) {
    if (comm_ == MPI_COMM_NULL)
      return;
    ++nccl_.communicators;
    rank_ = static_cast<std::size_t>(mpi::rank_in(comm_));
    size_ = static_cast<std::size_t>(mpi::size_of(comm_));
  }

  ~FakeCommunicator() override {
    std::erase_if(nccl_.kernels_,
        [this](const FakeNccl::Kernel& kernel) { return kernel.calls[0].communicator == this; });
    if (comm_ != MPI_COMM_NULL)
      MPI_Comm_free(&comm_);
  }

  bool ready() override {
    if (!nccl_.failure.empty())
      throw Error("NCCL: " + nccl_.failure);
    if (comm_ == MPI_COMM_NULL || hidden_)
      return false;
    if (polls_ > 0) {
      if (--polls_ > 0)
        return false;
      if (child_ != nullptr)
        std::exchange(child_, nullptr)->hidden_ = false;
      nccl_.closed += closing_;
      return true;
    }
    nccl_.progress();
    busy_ = busy_ && !nccl_.complete_later &&
            std::ranges::any_of(nccl_.kernels_,
                [this](const auto& kernel) { return kernel.calls[0].communicator == this; });
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
    const std::size_t share = call.count * width(call.type), own = rank_ * share;
    if (call.kind == Kind::reduce_scatter)
      check_place(call.to, call.from, share, own);
    else if (call.kind == Kind::all_gather)
      check_place(call.from, call.to, share, own);
    else if (!is_point_to_point(call.kind))
      check_place(call.from, call.to, share, 0);
    if (call.count == 0 || (call.peer >= 0 && std::cmp_greater_equal(call.peer, size_)))
      throw Error(fmt::format("a call about {} with {} of {}", call.count, call.peer, size_));
    if (nccl_.depth_ == 0)
      throw Error("a call outside of a group");
    nccl_.group_.push_back({this, call, queue});
    nccl_.launches.push_back(nccl_.group_.back());
    if (nccl_.group_[0].communicator != this || nccl_.group_[0].queue != queue)
      throw Error("a group of several communicators or queues");
  }

  void close() override {
    check_free();
    closing_ = true;
    polls_ = 3;
  }

  void abort() override {
    if (nccl_.depth_ == 0)
      throw Error("communicators are to be aborted in one group");
    nccl_.aborted += comm_ != MPI_COMM_NULL;
  }

  [[nodiscard]] MPI_Comm comm() const { return comm_; }

  void launch() { busy_ = true; }

private:
  void check_free() const {
    if (busy_ || hidden_ || polls_ > 0 || closing_)
      throw Error("a communicator was used before it was ready, or after its end");
  }

  /// `share` bytes at `small` must be apart from the large buffer, or where NCCL expects them.
  void check_place(const std::byte* small,
      const std::byte* large,
      std::size_t share,
      std::size_t expected) const {
    if (small != large + expected && small + share > large && small < large + share * size_)
      throw Error("a buffer overlaps another without being in place");
  }

  FakeNccl& nccl_;
  MPI_Comm comm_;
  std::size_t rank_ = 0, size_ = 0;
  bool hidden_ = false, busy_ = false, closing_ = false;
  int polls_ = 0;                      ///< for which it is not ready yet
  FakeCommunicator* child_ = nullptr;  ///< that will be seen when this one is ready
};

void FakeNccl::progress() {
  std::set<const void*> held;  // communicators and queues
  for (Kernel& kernel : kernels_) {
    const Launch& call = kernel.calls[0];
    const bool communicator_free = held.insert(call.communicator).second,
               queue_free = held.insert(call.queue).second;
    if (Clock::now() - kernel.issued > std::chrono::seconds(60))
      throw Error("a rank has waited for the others for too long");
    if (!communicator_free || !queue_free)
      continue;
    if (!std::exchange(kernel.begun, true))
      for (const Launch& each : kernel.calls)
        kernel.under_way.emplace_back(
            each.call, static_cast<int>(kernel.under_way.size()), each.communicator->comm());
    std::erase_if(kernel.under_way, [](Operation& operation) { return operation.done(); });
    kernel.over = kernel.under_way.empty();
  }
  std::erase_if(kernels_, [](const Kernel& kernel) { return kernel.over; });
}

FakeNccl::FakeNccl() = default;
FakeNccl::~FakeNccl() = default;

nccl::UniqueId FakeNccl::unique_id() {
  static unsigned char made = 0;
  nccl::UniqueId id;
  id.fill(std::byte{++made});
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
  if (--depth_ > 0 || group_.empty())
    return;
  ++groups;
  group_[0].communicator->launch();
  kernels_.push_back({std::exchange(group_, {})});
}

void FakeNccl::finish() {
  for (; !kernels_.empty(); std::this_thread::yield())
    progress();
}
}  // namespace minitaw::comm::test
