#include "comm/nccl/api.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <cstring>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#error "miniTaw needs NCCL 2.18 or newer (ncclCommSplit)"
#endif

namespace minitaw::comm::nccl {
namespace {

void check(ncclResult_t result, const char* call, ncclComm_t comm = nullptr) {
  // A communicator that does not block says that it is still at work; ready() asks for the end.
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const words = ncclGetLastError(comm);
  throw Error(fmt::format("{}: {}{}{}", call, ncclGetErrorString(result),
                          words == nullptr || *words == '\0' ? "" : ": ", words == nullptr ? "" : words));
}

ncclDataType_t type_of(Type type) {
  switch (type) {
  case Type::fp32:
    return ncclFloat32;
  case Type::bf16:
    return ncclBfloat16;
  case Type::bytes:
    break;
  }
  return ncclUint8;
}

cudaStream_t stream_of(Queue queue) { return static_cast<cudaStream_t>(queue); }

class LibraryCommunicator final : public Communicator {
public:
  LibraryCommunicator() = default;
  ~LibraryCommunicator() override {
    // The only calls whose result nobody can use any more.
    if (comm_ == nullptr) return;
    if (closed_) (void)ncclCommDestroy(comm_);
    else (void)ncclCommAbort(comm_);
  }

  /// Where NCCL writes the handle, at once or later.
  ncclComm_t* place() { return &comm_; }

  bool ready() override {
    if (comm_ == nullptr) return false;
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError", comm_);
    check(state, "NCCL", comm_);
    return state == ncclSuccess;
  }

  std::unique_ptr<Communicator> split(int colour, int key) override {
    auto part = std::make_unique<LibraryCommunicator>();
    check(ncclCommSplit(comm_, colour < 0 ? NCCL_SPLIT_NOCOLOR : colour, key, part->place(), nullptr),
          "ncclCommSplit", comm_);
    return part;
  }

  void send(const std::byte* data, std::size_t bytes, int peer, Queue queue) override {
    check(ncclSend(data, bytes, ncclUint8, peer, comm_, stream_of(queue)), "ncclSend", comm_);
  }
  void receive(std::byte* data, std::size_t bytes, int peer, Queue queue) override {
    check(ncclRecv(data, bytes, ncclUint8, peer, comm_, stream_of(queue)), "ncclRecv", comm_);
  }
  void broadcast(const std::byte* from, std::byte* to, std::size_t count, Type type, int root,
                 Queue queue) override {
    check(ncclBroadcast(from, to, count, type_of(type), root, comm_, stream_of(queue)), "ncclBroadcast",
          comm_);
  }
  void reduce(const std::byte* from, std::byte* to, std::size_t count, Type type, int root,
              Queue queue) override {
    check(ncclReduce(from, to, count, type_of(type), ncclSum, root, comm_, stream_of(queue)), "ncclReduce",
          comm_);
  }
  void all_gather(const std::byte* from, std::byte* to, std::size_t each, Type type, Queue queue) override {
    check(ncclAllGather(from, to, each, type_of(type), comm_, stream_of(queue)), "ncclAllGather", comm_);
  }
  void reduce_scatter(const std::byte* from, std::byte* to, std::size_t each, Type type,
                      Queue queue) override {
    check(ncclReduceScatter(from, to, each, type_of(type), ncclSum, comm_, stream_of(queue)),
          "ncclReduceScatter", comm_);
  }
  void all_reduce(const std::byte* from, std::byte* to, std::size_t count, Type type, Queue queue) override {
    check(ncclAllReduce(from, to, count, type_of(type), ncclSum, comm_, stream_of(queue)), "ncclAllReduce",
          comm_);
  }

  void close() override {
    check(ncclCommFinalize(comm_), "ncclCommFinalize", comm_);
    closed_ = true;
  }
  void abort() override {
    if (comm_ == nullptr) return;
    ncclComm_t const ending = comm_;
    comm_ = nullptr;
    check(ncclCommAbort(ending), "ncclCommAbort");
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
    check(ncclGetUniqueId(&made), "ncclGetUniqueId");
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
    check(ncclCommInitRankConfig(made->place(), ranks, known, rank, &config), "ncclCommInitRankConfig");
    return made;
  }

  void group_start() override { check(ncclGroupStart(), "ncclGroupStart"); }
  void group_end() override { check(ncclGroupEnd(), "ncclGroupEnd"); }
};

}  // namespace

Api& library() {
  static Library library;
  return library;
}

std::string library_version() {
  int code = 0;
  check(ncclGetVersion(&code), "ncclGetVersion");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace minitaw::comm::nccl
