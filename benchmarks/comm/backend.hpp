#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "contents.hpp"
#include "engine/make_transport.hpp"
#include "memory.hpp"

namespace minitaw::bench {

/// The buffers of a rank. What Operation::shift receives goes to `landing`, all else stays in `data`.
struct Buffers {
  explicit Buffers(std::size_t bytes) : data(bytes), landing(bytes) {}
  [[nodiscard]] const Memory& result(Operation operation) const {
    return operation == Operation::shift ? landing : data;
  }
  Memory data, landing;
};

/// One way to communicate.
class Backend {
public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  /// This rank's part of an operation; complete on return. Only ranks with a member call it.
  virtual void move(Operation operation, const Place& place, const Member& member, const Size& size,
                    Buffers& buffers) = 0;
  [[nodiscard]] virtual Contents::Slices slices() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
};

/// miniTaw's transport, as a run chooses it and waits in it. Collective over MPI_COMM_WORLD.
[[nodiscard]] std::unique_ptr<Backend> make_ours(const std::string& transport, const Places& places,
                                               const comm::mpi::WaitPolicy& waiting);

/// MPI's own blocking calls. Collective over MPI_COMM_WORLD.
[[nodiscard]] std::unique_ptr<Backend> make_raw_mpi(const Places& places);

/// NCCL's own calls, on the lanes' streams; only in builds with MINITAW_HAVE_NCCL. Collective over
/// MPI_COMM_WORLD.
[[nodiscard]] std::unique_ptr<Backend> make_raw_nccl(const Places& places);

/// What lies under `ours`: NCCL's own calls, or MPI's; nothing where MPI cannot reach the buffers.
[[nodiscard]] std::unique_ptr<Backend> make_raw(const std::string& ours, const Places& places);

}  // namespace minitaw::bench
