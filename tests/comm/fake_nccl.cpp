// SPDX-License-Identifier: BSD-3-Clause
#include "fake_nccl.hpp"
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include "comm/mpi/mpi.hpp"

namespace minitaw::comm::test {
using nccl::Type;
using Clock = std::chrono::steady_clock;

/// A call that has begun: all whom it concerns exchange it and their data.
class Exchange {
public:
  /// `number`: of the call in its group.
  Exchange(const nccl::Call& call, int number, MPI_Comm comm)
      : call_(call),
        rank_(mpi::rank_in(comm)),
        share_(call.count * (call.type == Type::fp32      ? 4
                                : call.type == Type::bf16 ? 2
                                                          : 1)) {
    const bool message = is_point_to_point(call.kind);
    const int tag = message ? 0 : number, members = mpi::size_of(comm);
    sent_.resize(sizeof call + share_ * (call.kind == reduce_scatter ? members : 1));
    std::memcpy(sent_.data(), &call, sizeof call);
    std::memcpy(sent_.data() + sizeof call, call.from, sent_.size() - sizeof call);
    const int bytes = static_cast<int>(sent_.size());
    for (int member = 0; member < members; ++member) {
      if (message && member != call.peer)
        continue;
      if (call.kind != recv)
        MPI_Issend(sent_.data(), bytes, MPI_BYTE, member, tag, comm, &requests_.emplace_back());
      if (call.kind != send)
        MPI_Irecv(received_.emplace_back(bytes).data(),
            bytes,
            MPI_BYTE,
            member,
            tag,
            comm,
            &requests_.emplace_back());
    }
  }

  bool done() {
    int all = 0;
    const int count = static_cast<int>(requests_.size());
    mpi::check_mpi(
        MPI_Testall(count, requests_.data(), &all, MPI_STATUSES_IGNORE), "members differ");
    if (all != 0)
      finish();
    return all != 0;
  }

private:
  using enum schedule::Kind;

  void finish() {
    for (std::vector<std::byte>& data : received_) {
      nccl::Call theirs = call_;
      std::memcpy(&theirs, data.data(), sizeof theirs);
      const bool same = is_point_to_point(call_.kind)
                            ? is_point_to_point(theirs.kind)
                            : theirs.kind == call_.kind && theirs.peer == call_.peer;
      if (!same || theirs.type != call_.type || theirs.count != call_.count)
        throw Error("members differ in their calls");
      data.erase(data.begin(), data.begin() + sizeof theirs);
    }
    const auto put = [&](std::size_t at, const std::byte* from) {
      std::memcpy(call_.to + at * share_, from, share_);
    };
    if (call_.kind == recv)
      put(0, received_[0].data());
    else if (call_.kind == broadcast)
      put(0, received_.at(call_.peer).data());
    else if (call_.kind == all_gather)
      for (const int member : indices(received_))
        put(member, received_[member].data());
    else if (call_.kind != send && (call_.kind != reduce || rank_ == call_.peer))
      put(0, sum(call_.kind == reduce_scatter ? rank_ * share_ : 0));
  }

  /// Of the shares at a place, in the first of them.
  const std::byte* sum(std::size_t place) {
    std::byte* const sum = received_[0].data() + place;
    for (std::size_t member = 1; member < received_.size(); ++member)
      add(call_.type == Type::fp32 ? model::Dtype::fp32 : model::Dtype::bf16,
          sum,
          received_[member].data() + place,
          static_cast<std::int64_t>(call_.count));
    return sum;
  }

  nccl::Call call_;
  int rank_;
  std::size_t share_;  ///< bytes
  std::vector<std::byte> sent_;
  std::vector<std::vector<std::byte>> received_;  ///< by member, or the one message
  std::vector<MPI_Request> requests_;
};

/// A group of calls of one communicator. Begins when those before it on communicator and queue are
/// over.
struct FakeNccl::Kernel {
  std::vector<Launch> calls;
  Clock::time_point issued = Clock::now();
  std::list<Exchange> under_way{};
  bool begun = false, over = false;
};

class FakeCommunicator final : public nccl::Communicator {
public:
  FakeCommunicator(FakeNccl& nccl, MPI_Comm made) : nccl_(nccl), comm_(made) {
    nccl_.communicators += comm_ != MPI_COMM_NULL;
  }

  ~FakeCommunicator() override {
    std::erase_if(nccl_.kernels_, own_);
    if (comm_ != MPI_COMM_NULL)
      MPI_Comm_free(&comm_);
  }

  bool ready() override {
    if (!nccl_.failure.empty())
      throw Error("NCCL: " + nccl_.failure);
    if (comm_ == MPI_COMM_NULL || hidden_)
      return false;
    nccl_.progress();
    if (polls_ == 0)
      return true;
    polls_ -= polls_ > 1 || nccl_.complete_later || std::ranges::none_of(nccl_.kernels_, own_);
    if (polls_ > 0)
      return false;
    if (child_ != nullptr)
      std::exchange(child_, nullptr)->hidden_ = false;
    nccl_.closed += closing_;
    return true;
  }

  std::unique_ptr<nccl::Communicator> split(int colour, int key) override {
    begin();
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &part);
    auto child = std::make_unique<FakeCommunicator>(nccl_, part);
    child->hidden_ = true;
    child_ = child.get();
    return child;
  }

  void issue(const nccl::Call& call, nccl::Queue queue) override {
    check_free();
    if (call.count == 0 || call.peer >= mpi::size_of(comm_))
      throw Error("a call about nothing, or of a rank that is no member");
    if (nccl_.depth_ == 0)
      throw Error("a call outside of a group");
    nccl_.group_.push_back({this, call, queue});
    nccl_.launches.push_back(nccl_.group_.back());
    if (nccl_.group_[0].communicator != this || nccl_.group_[0].queue != queue)
      throw Error("a group of several communicators or queues");
  }

  void close() override {
    begin();
    closing_ = true;
  }

  void abort() override {
    if (nccl_.depth_ == 0)
      throw Error("communicators are to be aborted in one group");
    nccl_.aborted += comm_ != MPI_COMM_NULL;
  }

  [[nodiscard]] MPI_Comm comm() const { return comm_; }

  /// It is at work, and not ready for a while.
  void begin() {
    check_free();
    polls_ = 3;
  }

private:
  void check_free() const {
    if (hidden_ || polls_ > 0 || closing_)
      throw Error("a communicator was used before it was ready, or after its end");
  }

  FakeNccl& nccl_;
  MPI_Comm comm_;
  bool hidden_ = false, closing_ = false;
  int polls_ = 3;                      ///< for which it is not ready yet
  FakeCommunicator* child_ = nullptr;  ///< that will be seen when this one is ready
  std::function<bool(const FakeNccl::Kernel&)> own_ = [this](const FakeNccl::Kernel& kernel) {
    return kernel.calls[0].communicator == this;
  };
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
    std::erase_if(kernel.under_way, [](Exchange& exchange) { return exchange.done(); });
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
  group_[0].communicator->begin();
  kernels_.push_back({std::exchange(group_, {})});
}

void FakeNccl::finish() {
  for (; !kernels_.empty(); std::this_thread::yield())
    progress();
}
}  // namespace minitaw::comm::test
