// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "base/range.hpp"
#include "benchmark.hpp"
#include "comm/mpi/mpi.hpp"
#include "engine/queue.hpp"

namespace minitaw::bench {
namespace {
using comm::mpi::check;

class Ours final : public Backend {
public:
  Ours(const std::string& transport, const Scopes& scopes, const comm::WaitPolicy& waiting)
      : waiting_(waiting),
        staging_("minitaw::comm benchmark", 2 * schedule::chunk_bytes * (schedule::lanes - 1)),
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

class RawMpi final : public Backend {
public:
  explicit RawMpi(const Scopes& scopes) : comms_(scopes.scopes.size()) {
    check(MPI_Op_create(add_bf16, 1, &add_bf16_), "MPI_Op_create");
    for (std::size_t s = 0; s < comms_.size(); ++s) {
      const Member member = member_of(scopes, scopes.scopes[s], comm::mpi::rank_in(MPI_COMM_WORLD));
      names_.push_back(scopes.scopes[s].name);
      check(MPI_Comm_split(MPI_COMM_WORLD,
                member.taken() ? member.communicator : MPI_UNDEFINED,
                member.index,
                &comms_[s].comm),
          "MPI_Comm_split");
    }
  }

  ~RawMpi() override { MPI_Op_free(&add_bf16_); }

  void move(Operation operation,
      const Scope& scope,
      const Member& member,
      const Size& size,
      Buffers& buffers) override {
    const MPI_Comm comm =
        comms_[static_cast<std::size_t>(std::ranges::find(names_, scope.name) - names_.begin())]
            .comm;
    const bool fp32 = size.dtype == model::Dtype::fp32;
    std::byte* const data = buffers.data.data();
    const int count = static_cast<int>(size.elements);
    const MPI_Datatype type = fp32 ? MPI_FLOAT : MPI_UINT16_T;
    const MPI_Op sum = fp32 ? MPI_SUM : add_bf16_;
    // The members' slices, for the calls that take them one by one.
    const bool even = count % member.size() == 0;
    std::vector<int> counts, starts;
    for (int m = 0; m < member.size(); ++m) {
      const Range part = slice(size.elements, member.size(), m);
      counts.push_back(static_cast<int>(part.count));
      starts.push_back(static_cast<int>(part.begin));
    }
    switch (operation) {
    case Operation::send:
      if (member.sends())
        check(MPI_Send(data, count, type, member.at(1), 0, comm), "MPI_Send");
      else if (member.receives())
        check(MPI_Recv(data, count, type, member.at(-1), 0, comm, MPI_STATUS_IGNORE), "MPI_Recv");
      return;
    case Operation::shift:
      return check(MPI_Sendrecv(data,
                       count,
                       type,
                       member.at(1),
                       0,
                       buffers.landing.data(),
                       count,
                       type,
                       member.at(-1),
                       0,
                       comm,
                       MPI_STATUS_IGNORE),
          "MPI_Sendrecv");
    case Operation::broadcast: return check(MPI_Bcast(data, count, type, 0, comm), "MPI_Bcast");
    case Operation::reduce:
      return check(
          MPI_Reduce(member.index == 0 ? MPI_IN_PLACE : data, data, count, type, sum, 0, comm),
          "MPI_Reduce");
    case Operation::all_gather:
      if (even)
        return check(
            MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts.front(), type, comm),
            "MPI_Allgather");
      return check(
          MPI_Allgatherv(
              MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, counts.data(), starts.data(), type, comm),
          "MPI_Allgatherv");
    case Operation::reduce_scatter:
      if (even)
        return check(MPI_Reduce_scatter_block(MPI_IN_PLACE, data, counts.front(), type, sum, comm),
            "MPI_Reduce_scatter_block");
      return check(MPI_Reduce_scatter(MPI_IN_PLACE, data, counts.data(), type, sum, comm),
          "MPI_Reduce_scatter");
    case Operation::all_reduce:
      return check(MPI_Allreduce(MPI_IN_PLACE, data, count, type, sum, comm), "MPI_Allreduce");
    }
  }

  [[nodiscard]] bool slices_in_place() const override { return false; }

  [[nodiscard]] std::string name() const override { return "MPI calls"; }

private:
  MPI_Op add_bf16_ = MPI_OP_NULL;
  std::vector<comm::mpi::OwnComm> comms_;  ///< by scope
  std::vector<std::string> names_;
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
