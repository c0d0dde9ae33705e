#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "base/error.hpp"
#include "base/pinned_space.hpp"
#include "comm/mpi/mpi.hpp"
#include "comm/mpi/transport.hpp"

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace minitaw::comm::mpi {

namespace {

constexpr const char* variable = "MINITAW_MPI_DIRECT";

/// Whether this MPI says that it takes pointers to this build's kind of device memory.
bool device_aware() {
#if defined(MINITAW_MPI_QUERY)
  return MINITAW_MPI_QUERY() == 1;
#elif defined(MINITAW_MPI_GPU_KIND)
  int supported = 0;
  return MPIX_GPU_query_support(MINITAW_MPI_GPU_KIND, &supported) == MPI_SUCCESS && supported != 0;
#else
  return false;
#endif
}

using Space = Kokkos::DefaultExecutionSpace;
using DeviceMemory = Space::memory_space;

constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, DeviceMemory>::accessible;

std::vector<Space> queues_of_its_own() {
  if constexpr (on_host) return {};
  else return Kokkos::Experimental::partition_space(Space(), std::vector<int>(Copier::queues, 1));
}

/// Copies between device memory and pinned memory, each queue an instance of the execution space. Where that
/// is the host's, a copy is complete when it has started.
class DeviceCopier final : public Copier {
public:
  ~DeviceCopier() override {
    // Copies of a transfer that was given up still use the pinned memory.
    for (const auto* spaces : {&loads_, &stores_})
      for (const Space& space : *spaces) space.fence("minitaw::comm: last copies");
  }

  void load(std::size_t queue, Piece pinned, Piece buffer) override {
    start<PinnedSpace, DeviceMemory>(loads_, queue, pinned, buffer);
  }
  void store(std::size_t queue, Piece buffer, Piece pinned) override {
    start<DeviceMemory, PinnedSpace>(stores_, queue, buffer, pinned);
  }
  void wait_loaded(std::size_t queue) override { wait(loads_, queue); }
  void wait_stored(std::size_t queue) override { wait(stores_, queue); }

private:
  template <class Memory>
  using Bytes = Kokkos::View<std::byte*, Memory, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  template <class To, class From>
  static void start([[maybe_unused]] const std::vector<Space>& spaces, [[maybe_unused]] std::size_t queue,
                    Piece to, Piece from) {
    if constexpr (on_host) std::memcpy(to.data(), from.data(), to.size());
    else
      Kokkos::deep_copy(spaces[queue], Bytes<To>(to.data(), to.size()),
                        Bytes<From>(from.data(), from.size()));
  }
  static void wait([[maybe_unused]] const std::vector<Space>& spaces, [[maybe_unused]] std::size_t queue) {
    if constexpr (!on_host) spaces[queue].fence("minitaw::comm: copy of a piece");
  }

  std::vector<Space> loads_ = queues_of_its_own(), stores_ = queues_of_its_own();  ///< by queue
};

/// 16 slots of 1 MiB, on all lanes and all ranks: both sides of a message cut alike, and it may leave on one
/// lane and arrive on another.
constexpr std::size_t pinned_piece = std::size_t{1} << 20, pinned_bytes = 16 * pinned_piece;

/// What a lane's slots live in.
struct Pinned {
  Kokkos::View<unsigned char*, PinnedSpace> bytes{
      Kokkos::view_alloc(Kokkos::WithoutInitializing, "minitaw::comm: pinned slots"), pinned_bytes};
  DeviceCopier copier;  // fences before the memory goes
};

}  // namespace

std::string_view name_of(Reach reach) { return reach == Reach::direct ? "direct" : "staged"; }

Reach reach(const char* wish, bool aware) {
  if (wish == nullptr) return aware ? Reach::direct : Reach::staged;
  const std::string_view text(wish);
  if (text != "0" && text != "1")
    throw InputError(fmt::format("{} is \"{}\"; it may be 1 (MPI takes device pointers) or 0 (it does not)",
                                 variable, text));
  return text == "1" ? Reach::direct : Reach::staged;
}

Reach agreed_reach(MPI_Comm world) {
  // Least first: a rank that cannot say is refused on all, a staged one makes all staged.
  enum : int { refused, staged, direct };
  int mine = refused, least = refused;
  std::string why = fmt::format("{} is neither 0 nor 1 on some rank", variable);
  try {
    mine = reach(std::getenv(variable), device_aware()) == Reach::direct ? direct : staged;
  } catch (const InputError& error) {
    why = error.what();
  }
  check(MPI_Allreduce(&mine, &least, 1, MPI_INT, MPI_MIN, world), "agreeing on MINITAW_MPI_DIRECT");
  if (least == refused) throw InputError(why);
  return least == direct ? Reach::direct : Reach::staged;
}

std::unique_ptr<Transport> device_transport(MPI_Comm world, const schedule::Program& program, Reach reach,
                                            const WaitPolicy& policy) {
  const auto& actions = program.ranks.at(static_cast<std::size_t>(rank_in(world))).actions;
  LaneMemories memories;
  for (std::size_t lane = 0; lane < memories.size(); ++lane) {
    if (std::ranges::none_of(actions, [&](const schedule::Action& a) {
          return static_cast<std::size_t>(a.lane) == lane && is_communication(a.kind);
        }))
      continue;
    const auto pinned = std::make_shared<Pinned>();
    const Piece all(reinterpret_cast<std::byte*>(pinned->bytes.data()), pinned_bytes);
    const Memory slots = through_slots(all, pinned_piece, pinned->copier);
    const bool direct = reach == Reach::direct;
    memories[lane] = {direct ? Memory{.piece_bytes = pinned_piece} : slots, slots, pinned};
  }
  return make_transport(world, program, memories, policy);
}

}  // namespace minitaw::comm::mpi
