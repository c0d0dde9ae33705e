// SPDX-License-Identifier: BSD-3-Clause
#include "base/range.hpp"
#include "benchmark.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/nccl/api.hpp"
#include "engine/queue.hpp"

namespace minitaw::bench {
namespace {
using comm::mpi::check;
using comm::nccl::Communicator;
using comm::nccl::Type;
using schedule::Kind;

void wait_ready(Communicator& communicator) {
  while (!communicator.ready()) {}
}

/// This rank in its communicator of a scope; nothing if it has none. The first member's id is sent
/// by MPI.
std::unique_ptr<Communicator> join(const Member& member) {
  comm::mpi::OwnComm members;
  check(MPI_Comm_split(MPI_COMM_WORLD,
            member.taken() ? member.communicator : MPI_UNDEFINED,
            member.index,
            &members.comm),
      "MPI_Comm_split");
  if (!member.taken())
    return nullptr;
  comm::nccl::UniqueId id{};
  if (member.index == 0)
    id = comm::nccl::library().unique_id();
  check(MPI_Bcast(id.data(), static_cast<int>(id.size()), MPI_BYTE, 0, members.comm),
      "telling NCCL's unique id");
  std::unique_ptr<Communicator> communicator =
      comm::nccl::library().init(member.size(), id, member.index);
  wait_ready(*communicator);
  return communicator;
}

class RawNccl final : public Backend {
public:
  explicit RawNccl(const Scopes& scopes) {
    for (const Scope& scope : scopes.scopes) {
      names_.push_back(scope.name);
      communicators_.push_back(join(member_of(scopes, scope, comm::mpi::rank_in(MPI_COMM_WORLD))));
    }
  }

  ~RawNccl() override {
    for (const auto& communicator : communicators_) {
      if (communicator == nullptr)
        continue;
      communicator->close();
      wait_ready(*communicator);
    }
  }

  void move(Operation operation,
      const Scope& scope,
      const Member& member,
      const Size& size,
      Buffers& buffers) override {
    Communicator& communicator = *communicators_[static_cast<std::size_t>(
        std::ranges::find(names_, scope.name) - names_.begin())];
    const schedule::Lane lane = lane_of(operation, scope, false);
    const auto issue = [&](Kind kind,
                           const std::byte* from,
                           std::byte* to,
                           std::size_t count,
                           Type type,
                           int peer) {
      communicator.issue(
          {kind, from, to, count, type, peer}, engine::lane_space(lane).cuda_stream());
    };
    comm::nccl::library().group_start();
    start(operation, member, size, buffers, issue);
    comm::nccl::library().group_end();
    wait_ready(communicator);
    engine::lane_space(lane).fence("minitaw::comm benchmark");
  }

  [[nodiscard]] std::string name() const override { return "NCCL calls"; }

private:
  template <class Issue>
  static void start(Operation operation,
      const Member& member,
      const Size& size,
      Buffers& buffers,
      const Issue& issue) {
    std::byte *const data = buffers.data.data(), *const landing = buffers.landing.data();
    const Type type = size.dtype == model::Dtype::fp32 ? Type::fp32 : Type::bf16;
    const std::size_t bytes = size.bytes(), count = static_cast<std::size_t>(size.elements);
    const auto at = [&](const Range& range) {
      return data + static_cast<std::size_t>(range.begin) * model::bytes_of(size.dtype);
    };
    const Range own = slice(size.elements, member.size(), member.index);
    const bool gathers = operation == Operation::all_gather;
    if (operation == Operation::send) {
      if (member.sends())
        issue(Kind::send, data, nullptr, bytes, Type::bytes, member.at(1));
      else if (member.receives())
        issue(Kind::recv, nullptr, data, bytes, Type::bytes, member.at(-1));
    } else if (operation == Operation::shift) {
      issue(Kind::send, data, nullptr, bytes, Type::bytes, member.at(1));
      issue(Kind::recv, nullptr, landing, bytes, Type::bytes, member.at(-1));
    } else if (operation == Operation::broadcast) {
      issue(Kind::broadcast, data, data, bytes, Type::bytes, 0);
    } else if (!gathers && operation != Operation::reduce_scatter) {
      issue(kind_of(operation), data, data, count, type, 0);
    } else if (size.elements % member.size() == 0) {
      issue(kind_of(operation),
          gathers ? at(own) : data,
          gathers ? data : at(own),
          static_cast<std::size_t>(own.count),
          type,
          -1);
    } else {  // NCCL has no calls for unequal slices: one call for each, as a group
      for (int m = 0; m < member.size(); ++m)
        if (const Range part = slice(size.elements, member.size(), m); part.count > 0)
          issue(gathers ? Kind::broadcast : Kind::reduce,
              at(part),
              at(part),
              static_cast<std::size_t>(part.count),
              type,
              m);
    }
  }

  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  ///< by scope
};
}  // namespace

std::unique_ptr<Backend> make_raw_nccl(const Scopes& scopes) {
  return std::make_unique<RawNccl>(scopes);
}
}  // namespace minitaw::bench
