// SPDX-License-Identifier: BSD-3-Clause
#include <map>

#include "base/range.hpp"
#include "benchmark.hpp"
#include "comm/mpi/mpi.hpp"
#include "engine/queue.hpp"

namespace minitaw::bench {
namespace {
using comm::mpi::check_mpi;

class Ours final : public Backend {
public:
  Ours(const std::string& transport, const Scopes& scopes, const comm::WaitPolicy& waiting)
      : waiting_(waiting),
        staging_("minitaw::comm benchmark", 2 * schedule::piece_bytes * (schedule::lanes - 1)),
        made_(engine::make_transport(transport,
            {MPI_COMM_WORLD, scopes.program, {staging_.data(), staging_.size()}, waiting})) {}

  void move(Operation operation,
      const Scope& scope,
      const Member& member,
      const Size& size,
      Buffers& buffers) override {
    const schedule::Lane out = lane_of(operation, scope, true),
                         in = lane_of(operation, scope, false);
    comm::Transport& transport = *made_;
    const auto message = [&](bool send, int peer, const Buffers::Memory& memory) {
      return comm::Message{send, peer, schedule::Payload::weights, memory.data(), memory.size()};
    };
    if (operation == Operation::shift) {
      // Both ways at once, as a rank's lanes are driven.
      const auto arrives = transport.start(in, message(false, member.previous(), buffers.landing)),
                 leaves = transport.start(out, message(true, member.next(), buffers.data));
      comm::finish({&arrives, &leaves}, waiting_);
    } else if (operation != Operation::send) {
      const auto started = transport.start(in,
          kind_of(operation),
          {member.communicator,
              member.ranks.front(),
              payload_of(operation),
              size.dtype,
              buffers.data.data(),
              size.elements});
      comm::finish({&started}, waiting_);
    } else if (member.sends() || member.receives()) {
      const auto started =
          member.sends() ? transport.start(out, message(true, member.next(), buffers.data))
                         : transport.start(in, message(false, member.previous(), buffers.data));
      comm::finish({&started}, waiting_);
    }
    if (!transport.on_stream())
      return;
    for (const schedule::Lane lane : {out, in})
      engine::lane_space(lane).fence("minitaw::comm benchmark");
  }

  [[nodiscard]] std::string name() const override { return made_->name(); }

private:
  comm::WaitPolicy waiting_;
  Buffers::Memory staging_;  ///< outlives the transport
  std::unique_ptr<comm::Transport> made_;
};

/// MPI has no bf16.
void add_bf16(void* from, void* to, int* elements, MPI_Datatype*) {
  comm::add(model::Dtype::bf16,
      static_cast<std::byte*>(to),
      static_cast<const std::byte*>(from),
      *elements);
}

/// The elements that a call moves, and among whom.
struct Elements {
  std::byte* data;
  int count;
  MPI_Datatype type;
  MPI_Comm comm;
};

void send(const Elements& e, const Member& member) {
  if (member.sends())
    check_mpi(MPI_Send(e.data, e.count, e.type, member.at(1), 0, e.comm), "MPI_Send");
  else if (member.receives())
    check_mpi(
        MPI_Recv(e.data, e.count, e.type, member.at(-1), 0, e.comm, MPI_STATUS_IGNORE), "MPI_Recv");
}

void shift(const Elements& e, const Member& member, std::byte* landing) {
  const int next = member.at(1), previous = member.at(-1);
  MPI_Status* const status = MPI_STATUS_IGNORE;
  check_mpi(
      MPI_Sendrecv(
          e.data, e.count, e.type, next, 0, landing, e.count, e.type, previous, 0, e.comm, status),
      "MPI_Sendrecv");
}

/// How many elements each member has of a share, and where its share begins.
struct Shares {
  Shares(int elements, int members) : are_equal(elements % members == 0) {
    for (int m = 0; m < members; ++m) {
      const Range part = share_of(elements, members, m);
      counts.push_back(static_cast<int>(part.count));
      starts.push_back(static_cast<int>(part.begin));
    }
  }

  bool are_equal;
  std::vector<int> counts, starts;
};

void all_gather(const Elements& e, const Shares& shares) {
  const int count = shares.counts.front();
  if (shares.are_equal)
    return check_mpi(
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, e.data, count, e.type, e.comm),
        "MPI_Allgather");
  const int *counts = shares.counts.data(), *starts = shares.starts.data();
  check_mpi(
      MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, e.data, counts, starts, e.type, e.comm),
      "MPI_Allgatherv");
}

void reduce_scatter(const Elements& e, const Shares& shares, MPI_Op sum) {
  const int count = shares.counts.front();
  if (shares.are_equal)
    return check_mpi(MPI_Reduce_scatter_block(MPI_IN_PLACE, e.data, count, e.type, sum, e.comm),
        "MPI_Reduce_scatter_block");
  check_mpi(MPI_Reduce_scatter(MPI_IN_PLACE, e.data, shares.counts.data(), e.type, sum, e.comm),
      "MPI_Reduce_scatter");
}

class RawMpi final : public Backend {
public:
  explicit RawMpi(const Scopes& scopes) {
    check_mpi(MPI_Op_create(add_bf16, 1, &add_bf16_), "MPI_Op_create");
    for (const Scope& scope : scopes.scopes) {
      const Member member = member_of(scopes, scope, comm::mpi::rank_in(MPI_COMM_WORLD));
      const int colour = member.taken() ? member.communicator : MPI_UNDEFINED;
      check_mpi(MPI_Comm_split(MPI_COMM_WORLD, colour, member.index, &comms_[scope.name].comm),
          "MPI_Comm_split");
    }
  }

  ~RawMpi() override { MPI_Op_free(&add_bf16_); }

  void move(Operation operation,
      const Scope& scope,
      const Member& member,
      const Size& size,
      Buffers& buffers) override {
    const bool fp32 = size.dtype == model::Dtype::fp32;
    const MPI_Op sum = fp32 ? MPI_SUM : add_bf16_;
    const int count = static_cast<int>(size.elements);
    const Elements e{
        buffers.data.data(), count, fp32 ? MPI_FLOAT : MPI_UINT16_T, comms_.at(scope.name).comm};
    const Shares shares(count, member.size());
    switch (operation) {
    case Operation::send: return send(e, member);
    case Operation::shift: return shift(e, member, buffers.landing.data());
    case Operation::broadcast:
      return check_mpi(MPI_Bcast(e.data, count, e.type, 0, e.comm), "MPI_Bcast");
    case Operation::reduce: {
      const void* const from = member.index == 0 ? MPI_IN_PLACE : e.data;
      return check_mpi(MPI_Reduce(from, e.data, count, e.type, sum, 0, e.comm), "MPI_Reduce");
    }
    case Operation::all_gather: return all_gather(e, shares);
    case Operation::reduce_scatter: return reduce_scatter(e, shares, sum);
    case Operation::all_reduce:
      return check_mpi(
          MPI_Allreduce(MPI_IN_PLACE, e.data, count, e.type, sum, e.comm), "MPI_Allreduce");
    }
  }

  [[nodiscard]] bool shares_in_place() const override { return false; }

  [[nodiscard]] std::string name() const override { return "MPI calls"; }

private:
  MPI_Op add_bf16_ = MPI_OP_NULL;
  std::map<std::string, comm::mpi::OwnComm> comms_;  ///< by name of the scope
};
}  // namespace

std::unique_ptr<Backend> make_ours(
    const std::string& transport, const Scopes& scopes, const comm::WaitPolicy& waiting) {
  return std::make_unique<Ours>(transport, scopes, waiting);
}

std::unique_ptr<Backend> make_raw(const std::string& ours, const Scopes& scopes) {
  if (ours != "nccl" && (kernels::on_host || ours == "mpi direct"))
    return std::make_unique<RawMpi>(scopes);
  return nullptr;
}
}  // namespace minitaw::bench
