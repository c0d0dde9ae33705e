#include <numeric>

#include "comm/mpi/mpi.hpp"
#include "base/range.hpp"
#include "comm/transport.hpp"
#include "backend.hpp"

namespace minitaw::bench {
namespace {

using comm::mpi::check;

/// MPI has no bf16.
void add_bf16(void* from, void* to, int* elements, MPI_Datatype*) {
  comm::add(comm::Scalar::bf16, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), *elements);
}

/// How MPI's calls see a buffer.
struct View {
  std::byte* data;
  int count;
  MPI_Datatype type;
  MPI_Op sum;
};

/// The members' slices, for the calls that take them one by one.
struct Shares {
  Shares(const Size& size, int members) : even(size.elements % members == 0) {
    for (int m = 0; m < members; ++m) {
      const Range part = minitaw::slice(size.elements, members, m);
      counts.push_back(static_cast<int>(part.count));
      starts.push_back(static_cast<int>(part.begin));
    }
  }
  bool even;
  std::vector<int> counts, starts;
};

class RawMpi final : public Backend {
public:
  explicit RawMpi(const Places& places) {
    const int rank = comm::mpi::rank_in(MPI_COMM_WORLD);
    check(MPI_Op_create(add_bf16, 1, &add_bf16_), "MPI_Op_create");
    for (const Place& place : places.places) {
      const Member member = member_of(places, place, rank);
      MPI_Comm& team = teams_.emplace_back(MPI_COMM_NULL);
      names_.push_back(place.name);
      check(
          MPI_Comm_split(MPI_COMM_WORLD, member.taken() ? member.communicator : MPI_UNDEFINED, member.index, &team),
          "MPI_Comm_split");
    }
  }
  ~RawMpi() override {
    for (MPI_Comm& team : teams_)
      if (team != MPI_COMM_NULL) MPI_Comm_free(&team);
    MPI_Op_free(&add_bf16_);
  }

  void move(Operation operation, const Place& place, const Member& member, const Size& size,
            Buffers& buffers) override {
    const MPI_Comm team = team_at(place);
    const View view = view_of(size, buffers.data);
    switch (operation) {
    case Operation::send:
      return send(view, member, team);
    case Operation::shift:
      return check(MPI_Sendrecv(view.data, view.count, view.type, (member.index + 1) % member.size(), 0,
                                buffers.landing.data(), view.count, view.type,
                                (member.index + member.size() - 1) % member.size(), 0, team, MPI_STATUS_IGNORE),
                   "MPI_Sendrecv");
    case Operation::broadcast:
      return check(MPI_Bcast(view.data, view.count, view.type, 0, team), "MPI_Bcast");
    case Operation::reduce:
      return reduce(view, member, team);
    case Operation::all_gather:
      return all_gather(view, Shares(size, member.size()), team);
    case Operation::reduce_scatter:
      return reduce_scatter(view, Shares(size, member.size()), team);
    case Operation::all_reduce:
      return check(MPI_Allreduce(MPI_IN_PLACE, view.data, view.count, view.type, view.sum, team),
                   "MPI_Allreduce");
    }
  }
  [[nodiscard]] Contents::Slices slices() const override { return Contents::Slices::at_front; }
  [[nodiscard]] std::string name() const override { return "MPI calls"; }

private:
  [[nodiscard]] MPI_Comm team_at(const Place& place) const {
    return teams_[static_cast<std::size_t>(std::ranges::find(names_, place.name) - names_.begin())];
  }

  [[nodiscard]] View view_of(const Size& size, const Memory& memory) const {
    const int count = static_cast<int>(size.elements);
    if (size.scalar == comm::Scalar::fp32) return {memory.data(), count, MPI_FLOAT, MPI_SUM};
    return {memory.data(), count, MPI_UINT16_T, add_bf16_};
  }

  static void send(const View& v, const Member& member, MPI_Comm team) {
    if (member.sends()) check(MPI_Send(v.data, v.count, v.type, member.index + 1, 0, team), "MPI_Send");
    else if (member.receives())
      check(MPI_Recv(v.data, v.count, v.type, member.index - 1, 0, team, MPI_STATUS_IGNORE), "MPI_Recv");
  }

  static void reduce(const View& v, const Member& member, MPI_Comm team) {
    const void* from = member.index == 0 ? MPI_IN_PLACE : v.data;
    check(MPI_Reduce(from, v.data, v.count, v.type, v.sum, 0, team), "MPI_Reduce");
  }

  static void all_gather(const View& v, const Shares& shares, MPI_Comm team) {
    if (shares.even)
      return check(
          MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, v.data, shares.counts.front(), v.type, team),
          "MPI_Allgather");
    check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, v.data, shares.counts.data(),
                         shares.starts.data(), v.type, team),
          "MPI_Allgatherv");
  }

  static void reduce_scatter(const View& v, const Shares& shares, MPI_Comm team) {
    if (shares.even)
      return check(MPI_Reduce_scatter_block(MPI_IN_PLACE, v.data, shares.counts.front(), v.type, v.sum, team),
                   "MPI_Reduce_scatter_block");
    check(MPI_Reduce_scatter(MPI_IN_PLACE, v.data, shares.counts.data(), v.type, v.sum, team),
          "MPI_Reduce_scatter");
  }

  MPI_Op add_bf16_ = MPI_OP_NULL;
  std::vector<std::string> names_;
  std::vector<MPI_Comm> teams_;  ///< by place
};

}  // namespace

std::unique_ptr<Backend> make_raw_mpi(const Places& places) { return std::make_unique<RawMpi>(places); }

}  // namespace minitaw::bench
