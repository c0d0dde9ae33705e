// SPDX-License-Identifier: BSD-3-Clause
// Transports on memory of Kokkos's default execution space: a device's where the build has one.
#include <Kokkos_Core.hpp>
#include "base/error.hpp"
#include "base/vendor.hpp"
#include "topology/devices.hpp"
#include "transports.hpp"

namespace minitaw::comm::test {
namespace {
constexpr bool kernels_on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace,
    Kokkos::DefaultExecutionSpace::memory_space>::accessible;

/// Values in device memory.
class OnDevice {
public:
  explicit OnDevice(const Values& values) : values_(values), device_("values", values_.bytes()) {
    Kokkos::deep_copy(device_, host());
  }

  [[nodiscard]] Collective collective(int communicator, int root) {
    Collective call = values_.collective(communicator, root);
    call.data = data();
    return call;
  }

  [[nodiscard]] Message message(bool send, int peer) {
    return {send, peer, Payload::weights, data(), values_.bytes()};
  }

  [[nodiscard]] const Values& get() {
    Kokkos::deep_copy(host(), device_);
    return values_;
  }

  [[nodiscard]] std::byte* data() { return device_.data(); }

private:
  using OnHost = Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  OnHost host() { return OnHost(values_.data(), values_.bytes()); }

  Values values_;
  Kokkos::View<std::byte*> device_;
};

/// A way to move what is in device memory; makes nothing where it cannot go.
struct Way {
  const char* name;
  std::shared_ptr<Transport> (*make)(const schedule::Program&);
};

class OnDevices : public testing::TestWithParam<Way> {
protected:
  void SetUp() override {
    if (transport_ == nullptr)
      GTEST_SKIP() << "ranks share a device";
  }

  std::shared_ptr<Transport> transport_ = GetParam().make(program(ranks_of_job()));
};

TEST_P(OnDevices, ExecuteEveryCollective) {
  World world(transport_);
  for (const Call kind : collectives)
    for (const int elements : {1, 1000, 700'001})
      EXPECT_EQ(wrong_after<OnDevice>(
                    world, Lane::inputs_recv, {kind, 0, world.ranks / 2, Dtype::fp32, elements}),
          0)
          << name_of(kind) << " of " << elements;
}

TEST_P(OnDevices, ExchangeBothWays) {
  World world(transport_);
  if (world.ranks == 1)
    GTEST_SKIP() << "needs two ranks";
  for (const int elements : {3, 9'000'001}) {
    const auto from = [&](int rank) { return contribution_of(rank, Dtype::fp32, elements); };
    OnDevice out(from(world.rank)), in(Values(Dtype::fp32, elements));
    world.exchange({out.message(true, world.next), in.message(false, world.previous)});
    EXPECT_EQ(in.get(), from(world.previous)) << elements;
    EXPECT_EQ(out.get(), from(world.rank)) << elements;
  }
}

template <bool direct>
std::shared_ptr<Transport> over_mpi_of_device(const schedule::Program& plan) {
  return mpi::device_transport(MPI_COMM_WORLD, plan, direct);
}

#if defined(MINITAW_HAVE_NCCL)
/// By UUID: devices of two nodes may have the same place on their buses.
bool devices_are_shared() {
  const auto at = static_cast<std::size_t>(Kokkos::device_id());
  const auto uuids = mpi::gather_lists(
      topology::visible_devices().at(at).uuid, MPI_COMM_WORLD, "gathering devices");
  const char* const shared = topology::shared_device(uuids) ? "shared" : "";
  return !mpi::broadcast(shared, MPI_COMM_WORLD).empty();
}

/// NCCL's transport with the memory and queues that it works with.
struct OverNccl {
  std::vector<Kokkos::DefaultExecutionSpace> lanes = Kokkos::Experimental::partition_space(
      Kokkos::DefaultExecutionSpace(), std::vector<int>(schedule::lanes, 1));
  Kokkos::View<unsigned char*> scratch{"scratch", std::size_t{1} << 16};
  std::unique_ptr<Transport> transport;

  explicit OverNccl(const schedule::Program& plan)
      : transport(nccl::make_transport(MPI_COMM_WORLD,
            plan,
            nccl::library(),
            {.queues = queues(),
                .scratch = {reinterpret_cast<std::byte*>(scratch.data()), scratch.size()}})) {}

  [[nodiscard]] std::array<nccl::Queue, schedule::lanes> queues() const {
    std::array<nccl::Queue, schedule::lanes> queues{};
    for (std::size_t l = 0; l < queues.size(); ++l)
      queues[l] = vendor::stream_of(lanes[l]);
    return queues;
  }
};

std::shared_ptr<Transport> over_nccl(const schedule::Program& plan) {
  if (devices_are_shared())
    return nullptr;
  const auto owner = std::make_shared<OverNccl>(plan);
  return {owner, owner->transport.get()};
}
#endif

std::vector<Way> ways() {
  std::vector<Way> ways{{"staged", over_mpi_of_device<false>}};
  // Device pointers may be tried only where MPI takes them.
  if (kernels_on_host)
    ways.push_back({"direct", over_mpi_of_device<true>});
#if defined(MINITAW_HAVE_NCCL)
  ways.push_back({"nccl", over_nccl});
#endif
  return ways;
}

INSTANTIATE_TEST_SUITE_P(
    On, OnDevices, testing::ValuesIn(ways()), [](const auto& which) { return which.param.name; });

/// What NCCL itself, or its stand-in, can be asked with one device: every call copies from one
/// buffer to another.
TEST(Nccl, LetsARankSendToItselfAndExecuteEveryCollectiveAlone) {
#if defined(MINITAW_HAVE_NCCL)
  nccl::Api& api = nccl::library();
#else
  FakeNccl api;
#endif
  const std::unique_ptr<nccl::Communicator> alone = api.init(1, api.unique_id(), 0);
  const auto wait_ready = [&] {
    for (Backoff backoff({}); !alone->ready();)
      backoff.once();
  };
  wait_ready();
  std::vector<Call> kinds{Call::send};
  kinds.insert(kinds.end(), collectives.begin(), collectives.end());
  constexpr std::int64_t elements = 700'001;
  const Values values = contribution_of(3, Dtype::fp32, elements);
  for (const Call kind : kinds) {
    OnDevice from(values), to(Values(Dtype::fp32, elements));
    const bool message = kind == Call::send;
    nccl::Call call{kind,
        from.data(),
        to.data(),
        message ? values.bytes() : elements,
        message ? nccl::Type::bytes : nccl::Type::fp32,
        0};
    api.group_start();
    alone->issue(call, nullptr);
    call.kind = Call::recv;
    if (message)
      alone->issue(call, nullptr);
    api.group_end();
    wait_ready();
    Kokkos::fence();
    EXPECT_EQ(to.get(), values) << name_of(kind);
  }
  alone->close();
  wait_ready();
}

/// With this text as MINITAW_MPI_DIRECT on this rank; nullptr: it is not set.
bool direct_with(const char* wish) {
  if (wish != nullptr)
    setenv("MINITAW_MPI_DIRECT", wish, 1);
  else
    unsetenv("MINITAW_MPI_DIRECT");
  return mpi::agree_on_direct(MPI_COMM_WORLD);
}

TEST(Direct, IsTheSameOnAllRanks) {
  const int rank = mpi::rank_in(MPI_COMM_WORLD);
  for (const bool last : {true, false})
    EXPECT_EQ(direct_with(!last && rank + 1 == ranks_of_job() ? "0" : "1"), last);
  if (kernels_on_host) {
    EXPECT_FALSE(direct_with(nullptr)) << "no MPI takes device pointers here";
  }
  for (const char* wrong : {"maybe", ""})
    EXPECT_THROW((void)direct_with(rank == 0 ? wrong : nullptr), InputError) << "on all ranks";
  unsetenv("MINITAW_MPI_DIRECT");
}
}  // namespace
}  // namespace minitaw::comm::test
