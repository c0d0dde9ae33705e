// SPDX-License-Identifier: BSD-3-Clause
#include "comm/nccl/api.hpp"
#include <cstring>
#include <fmt/format.h>
#include <utility>
#include "base/vendor.hpp"
#ifdef MINITAW_HIP
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

namespace minitaw::comm::nccl {
namespace {
void check_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) {
  // A communicator that does not block says that it is still at work; ready() asks for the end.
  if (result == ncclSuccess || result == ncclInProgress)
    return;
  const char* const words = ncclGetLastError(comm);
  throw Error(fmt::format("{}: {}{}{}",
      call,
      ncclGetErrorString(result),
      words == nullptr || *words == '\0' ? "" : ": ",
      words == nullptr ? "" : words));
}

ncclDataType_t type_of(Type t) {
  return t == Type::fp32 ? ncclFloat32 : t == Type::bf16 ? ncclBfloat16 : ncclUint8;
}

class LibraryCommunicator final : public Communicator {
public:
  ~LibraryCommunicator() override {
    // The only calls whose result is of no use any more.
    if (comm_ == nullptr)
      return;
    if (closed_)
      (void)ncclCommDestroy(comm_);
    else
      (void)ncclCommAbort(comm_);
  }

  /// The variable to which NCCL writes the handle, at once or later.
  ncclComm_t* place() { return &comm_; }

  bool ready() override {
    if (comm_ == nullptr)
      return false;
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
    check_nccl(state, "NCCL", comm_);
    return state == ncclSuccess;
  }

  std::unique_ptr<Communicator> split(int colour, int key) override {
    auto part = std::make_unique<LibraryCommunicator>();
    check_nccl(
        ncclCommSplit(comm_, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, part->place(), nullptr),
        "ncclCommSplit",
        comm_);
    return part;
  }

  void issue(const Call& c, Queue queue) override {
    using enum schedule::Kind;
    auto* const stream = static_cast<vendor::Stream>(queue);
    const ncclDataType_t type = type_of(c.type);
    const auto done = [this](ncclResult_t result, const char* call) {
      check_nccl(result, call, comm_);
    };
    switch (c.kind) {
    case send: return done(ncclSend(c.from, c.count, type, c.peer, comm_, stream), "ncclSend");
    case recv: return done(ncclRecv(c.to, c.count, type, c.peer, comm_, stream), "ncclRecv");
    case broadcast:
      return done(
          ncclBroadcast(c.from, c.to, c.count, type, c.peer, comm_, stream), "ncclBroadcast");
    case reduce:
      return done(
          ncclReduce(c.from, c.to, c.count, type, ncclSum, c.peer, comm_, stream), "ncclReduce");
    case all_gather:
      return done(ncclAllGather(c.from, c.to, c.count, type, comm_, stream), "ncclAllGather");
    case reduce_scatter:
      return done(ncclReduceScatter(c.from, c.to, c.count, type, ncclSum, comm_, stream),
          "ncclReduceScatter");
    case all_reduce:
      return done(
          ncclAllReduce(c.from, c.to, c.count, type, ncclSum, comm_, stream), "ncclAllReduce");
    default: throw Error("NCCL was asked for what is no communication");
    }
  }

  void close() override {
    check_nccl(ncclCommFinalize(comm_), "ncclCommFinalize", comm_);
    closed_ = true;
  }

  void abort() override {
    if (comm_ == nullptr)
      return;
    check_nccl(ncclCommAbort(std::exchange(comm_, nullptr)), "ncclCommAbort");
  }

private:
  ncclComm_t comm_ = nullptr;
  bool closed_ = false;
};

class Library final : public Api {
public:
  UniqueId unique_id() override {
    static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
    ncclUniqueId made;
    check_nccl(ncclGetUniqueId(&made), "ncclGetUniqueId");
    UniqueId id;
    std::memcpy(id.data(), &made, sizeof(made));
    return id;
  }

  std::unique_ptr<Communicator> init(int ranks, const UniqueId& id, int rank) override {
    ncclUniqueId known;
    std::memcpy(&known, id.data(), sizeof(known));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    auto made = std::make_unique<LibraryCommunicator>();
    check_nccl(ncclCommInitRankConfig(made->place(), ranks, known, rank, &config),
        "ncclCommInitRankConfig");
    return made;
  }

  void group_start() override { check_nccl(ncclGroupStart(), "ncclGroupStart"); }

  void group_end() override { check_nccl(ncclGroupEnd(), "ncclGroupEnd"); }
};
}  // namespace

Api& library() {
  static Library library;
  return library;
}

std::string library_version() {
  int code = 0;
  check_nccl(ncclGetVersion(&code), "ncclGetVersion");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}
}  // namespace minitaw::comm::nccl
