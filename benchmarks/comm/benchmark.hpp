// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <Kokkos_Core.hpp>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/transport.hpp"
#include "engine/make_transport.hpp"
#include "kernels/kernels.hpp"
#include "topology/groups.hpp"

/// minitaw_comm: messages and collectives of miniTaw's transport beside the library's own calls.
namespace minitaw::bench {
/// What the command line asks for.
struct CommOptions {
  std::string deck;  ///< sizes and groups from its cases; empty: from `bytes`
  std::vector<std::string> overrides;
  std::vector<std::int64_t> bytes = {65'536, 1'048'576, 4'194'304};
  std::optional<topology::Groups> groups;  ///< else those of the deck, else one of all ranks
  std::string transport = "auto";
  int rounds = 21;  ///< measurements of each operation, ours and raw
  bool verify = false;
  std::string spoil;  ///< the operation whose result is damaged before it is checked
  std::string markdown;
};

enum class Operation {
  send,            ///< members 0, 2, ... each send to the next one
  shift,           ///< all send to the next and receive from the previous member, at the same time
  broadcast,       ///< from member 0
  reduce,          ///< to member 0
  all_gather,      ///< in place
  reduce_scatter,  ///< in place
  all_reduce,      ///< in place
};
inline constexpr std::array<std::string_view, 7> operation_names = {
    "send", "shift", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce"};

[[nodiscard]] inline std::string_view name_of(Operation operation) {
  return operation_names[static_cast<std::size_t>(operation)];
}

/// Of send and shift: send.
[[nodiscard]] schedule::Kind kind_of(Operation operation);
/// Gradients are added up, weights are not.
[[nodiscard]] schedule::Payload payload_of(Operation operation);

/// Where an operation runs: communicators whose ranks do the same at the same time, each among its
/// members.
struct Scope {
  std::string name;
  bool inside = false;             ///< all are groups
  std::vector<int> communicators;  ///< of the program
};

/// The lane that a schedule has for one side of it; for messages, the sender's or the receiver's.
[[nodiscard]] schedule::Lane lane_of(Operation operation, const Scope& scope, bool sends);

/// "in groups" (those of more than one rank), "between groups" and "all ranks", as far as they
/// differ.
struct Scopes {
  std::vector<Scope> scopes;
  schedule::Program
      program;  ///< the communicators, and every operation once, so that a transport is ready
};

[[nodiscard]] Scopes scopes_of(const topology::Groups& groups);

/// A rank in its communicator of a scope.
struct Member {
  int communicator = -1;  ///< -1: the rank takes no part
  std::vector<int> ranks;
  int index = -1;

  [[nodiscard]] bool taken() const { return communicator >= 0; }

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }

  /// Index of the member a distance away.
  [[nodiscard]] int at(int distance) const { return (index + distance + size()) % size(); }

  [[nodiscard]] int next() const { return ranks[static_cast<std::size_t>(at(1))]; }

  [[nodiscard]] int previous() const { return ranks[static_cast<std::size_t>(at(-1))]; }

  /// Member of a pair of Operation::send; the last of an odd number is in none.
  [[nodiscard]] bool sends() const { return index % 2 == 0 && index + 1 < size(); }

  [[nodiscard]] bool receives() const { return index % 2 == 1; }
};

[[nodiscard]] Member member_of(const Scopes& scopes, const Scope& scope, int rank);

/// A message: a buffer of elements, all of which move.
struct Size {
  std::string what;  ///< "shard of 1 block, H = 512"
  std::int64_t elements = 0;
  model::Dtype dtype = model::Dtype::fp32;
  topology::Groups groups{{1}};

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(elements) * model::bytes_of(dtype);
  }

  friend bool operator==(const Size& a, const Size& b) {
    return a.elements == b.elements && a.dtype == b.dtype && a.groups.sizes() == b.groups.sizes();
  }
};

/// The buffers of a rank where models keep theirs. What Operation::shift receives goes to
/// `landing`, all else stays in `data`.
struct Buffers {
  using Memory = Kokkos::View<std::byte*, kernels::MemorySpace>;

  explicit Buffers(std::size_t bytes)
      : data("minitaw::comm benchmark", bytes),
        landing("minitaw::comm benchmark", bytes) {}

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
  virtual void move(Operation operation,
      const Scope& scope,
      const Member& member,
      const Size& size,
      Buffers& buffers) = 0;

  /// Whether a reduce_scatter leaves its slice in its place (ours), else at the beginning (MPI's).
  [[nodiscard]] virtual bool shares_in_place() const { return true; }

  [[nodiscard]] virtual std::string name() const = 0;
};

/// miniTaw's transport, as a run chooses it and waits in it. Collective over MPI_COMM_WORLD, as the
/// others are.
[[nodiscard]] std::unique_ptr<Backend> make_ours(
    const std::string& transport, const Scopes& scopes, const comm::WaitPolicy& waiting);
/// MPI's own blocking calls; nothing where MPI cannot reach the buffers, or `ours` is NCCL's, which
/// nccl-tests measures.
[[nodiscard]] std::unique_ptr<Backend> make_raw(const std::string& ours, const Scopes& scopes);

/// What is in the buffers before an operation, and what must be there after it.
class Contents {
public:
  explicit Contents(const Size& size) : size_(size) {}

  /// Numbers of [-1, 1) in the size's type, different for every rank.
  [[nodiscard]] std::vector<std::byte> before(int rank) const;
  /// What is wrong with a buffer after the operation; empty if nothing. Moves must be equal to the
  /// bit, sums to rounding of what double gives.
  [[nodiscard]] std::string fault(Operation operation,
      const Member& member,
      int rank,
      bool shares_in_place,
      const std::vector<std::byte>& after) const;

private:
  /// Element i of a rank's buffer.
  [[nodiscard]] float number(int rank, std::int64_t i) const;

  Size size_;
};

/// One operation in one scope with one size.
struct Measured {
  Size size;
  std::string scope;
  Operation operation = Operation::send;
  std::string backend, raw_backend;
  std::vector<double> ours,
      raw;  ///< seconds, the slowest rank's, by round; raw is empty where there is none
};

/// All operations in all scopes, each `rounds` times with ours and raw in turn, who is first
/// changing from round to round. Every measurement starts with the same contents and a barrier.
/// Collective over MPI_COMM_WORLD; the result is complete on all ranks. With options.verify the
/// contents after the first round are checked; throws Wrong on all ranks if they are not what they
/// must be.
[[nodiscard]] std::vector<Measured> measure(const Size& size,
    const Scopes& scopes,
    Backend& ours,
    Backend* raw,
    const CommOptions& options);

/// An operation left wrong contents. On all ranks, with the words of the first one that has seen
/// it.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace minitaw::bench
