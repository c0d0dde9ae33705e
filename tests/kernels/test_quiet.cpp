// Kernels only enqueue work: after a first call, none of them fences, allocates or copies.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cases.hpp"
#include "kernels/kernels.hpp"
#include "kokkos_listener.hpp"

namespace minitaw::kernels {
namespace {

using test::KokkosListener;

ExecutionSpace exec() { return {}; }

template <class Kernel>
void expect_quiet(const char* name, const Kernel& kernel) {
  kernel();
  exec().fence();
  {
    const KokkosListener listener;
    kernel();
    EXPECT_EQ(listener.seen(), KokkosListener::Seen()) << name;
    EXPECT_EQ(listener.copies(), 0) << name;
  }
  exec().fence();
}

TEST(Listener, HearsCopiesToo) {
  const Kokkos::View<float*, MemorySpace> view("memory", 7), other("more", 7);
  const KokkosListener listener;
  Kokkos::deep_copy(exec(), view, other);
  EXPECT_EQ(listener.copies(), 1);
}

template <class C>
class Quiet : public test::OfCase<C> {
  void SetUp() override {
    test::OfCase<C>::SetUp();
    prepare(exec());
  }
};
TYPED_TEST_SUITE(Quiet, test::Cases, test::CaseName);

TYPED_TEST(Quiet, Layers) {
  using E = typename TypeParam::E;
  using Device = typename TestFixture::Device;
  using Floats = typename TestFixture::Floats;
  for (const auto& [rows, width] : {std::pair{33, 130}, {64, 256}, {3, 16384}}) {
    const Device x(rows, width, this->random(rows * width, 1)), y(rows, width, this->random(rows * width, 2)),
        gain(width, 1, this->random(width, 3)), wide(rows, 2 * width, this->random(rows * 2 * width, 4));
    const Floats rstd = Floats::poisoned(rows, 1), partial = Floats::poisoned(std::min(rows, 7), width),
                 dgain(width, 1, test::random_floats(width, 5)),
                 m1(rows, width, test::Doubles(rows * width, 0)),
                 m2(rows, width, test::Doubles(rows * width, 0)),
                 master(rows, width, test::Doubles(rows * width, 1));
    const test::DeviceMatrix<std::int32_t> zeros(rows, 1, test::Doubles(rows, 0)), segments(2, 1, {0, 1});
    const test::DeviceMatrix<double> losses(rows, 1, test::Doubles(rows, 0)), loss(1, 1, {0});
    expect_quiet("rmsnorm_forward",
                 [&] { rmsnorm_forward(exec(), y.matrix(), rstd.vector(), {}, x.matrix(), gain.vector()); });
    expect_quiet("rmsnorm_rebuild",
                 [&] { rmsnorm_rebuild(exec(), y.matrix(), x.matrix(), rstd.vector(), gain.vector()); });
    expect_quiet("rmsnorm_backward", [&] {
      rmsnorm_backward(exec(), y.matrix(), partial.matrix(), y.matrix(), x.matrix(), x.matrix(),
                       rstd.vector(), gain.vector());
    });
    expect_quiet("rmsnorm_backward_gain",
                 [&] { rmsnorm_backward_gain(exec(), dgain.vector(), partial.matrix(), true); });
    expect_quiet("swiglu_forward", [&] { swiglu_forward(exec(), y.matrix(), wide.matrix()); });
    expect_quiet("swiglu_backward",
                 [&] { swiglu_backward(exec(), wide.matrix(), y.matrix(), y.matrix(), wide.matrix()); });
    expect_quiet("embedding_forward",
                 [&] { embedding_forward(exec(), y.matrix(), x.matrix(), zeros.vector()); });
    expect_quiet("embedding_backward", [&] {
      embedding_backward<E>(exec(), master.matrix(), x.matrix(), zeros.vector(), zeros.vector(),
                            segments.vector());
    });
    expect_quiet("cross_entropy",
                 [&] { cross_entropy(exec(), losses.vector(), y.matrix(), zeros.vector(), 1.0F); });
    expect_quiet("sum_losses", [&] { sum_losses(exec(), loss.matrix().data(), losses.vector(), 1); });
    expect_quiet("adamw", [&] {
      adamw(exec(), y.vector(), master.vector(), m1.vector(), m2.vector(), master.vector(),
            {1e-3F, 0.9F, 0.95F, 1e-8F, 0.1F, 1, 1});
    });
    expect_quiet("add", [&] { add<E>(exec(), master.vector(), x.vector(), true); });
  }
}

TYPED_TEST(Quiet, Rope) {
  using Device = typename TestFixture::Device;
  for (const int head_dim : {6, 128}) {
    const int seq = 19, heads = 3;
    const Device qkv(seq, heads * head_dim, this->random(seq * heads * head_dim, 1));
    const auto table = test::DeviceMatrix<float>::poisoned(seq, head_dim);
    expect_quiet("rope_table", [&] { rope_table(exec(), table.matrix()); });
    expect_quiet("rope_forward", [&] { rope_forward(exec(), qkv.matrix(), table.matrix(), heads); });
    expect_quiet("rope_backward", [&] { rope_backward(exec(), qkv.matrix(), table.matrix(), heads); });
  }
}

TYPED_TEST(Quiet, Linear) {
  using E = typename TypeParam::E;
  using Device = typename TestFixture::Device;
  for (const auto& [rows, width, out] : {std::array{33, 31, 2}, {64, 96, 128}}) {
    const Device x(rows, width, this->random(rows * width, 1)), w(out, width, this->random(out * width, 2)),
        y(rows, out, this->random(rows * out, 3));
    const test::DeviceMatrix<float> total(out, width, test::random_floats(out * width, 4));
    expect_quiet("linear_forward", [&] { linear_forward(exec(), y.matrix(), x.matrix(), w.matrix(), 1); });
    expect_quiet("linear_backward_input",
                 [&] { linear_backward_input(exec(), x.matrix(), y.matrix(), w.matrix()); });
    expect_quiet("linear_backward_weight", [&] {
      linear_backward_weight<float, E>(exec(), total.matrix(), y.matrix(), x.matrix(), true);
      linear_backward_weight<E, E>(exec(), w.matrix(), y.matrix(), x.matrix(), false);
    });
  }
}

TYPED_TEST(Quiet, Attention) {
  using E = typename TypeParam::E;
  using Device = typename TestFixture::Device;
  using Floats = typename TestFixture::Floats;
  const AttentionSizes z{2, 40, 4, 2, 64};
  const int rows = z.batch * z.seq, width = z.heads * z.head_dim,
            stride = (z.heads + 2 * z.kv_heads) * z.head_dim;
  const Device qkv(rows, stride, this->random(rows * stride, 1)),
      y = Device::poisoned(rows, width), dy(rows, width, this->random(rows * width, 2)),
      dqkv = Device::poisoned(rows, stride);
  const Floats lse = Floats::poisoned(z.batch * z.heads, z.seq),
               delta = Floats::poisoned(z.batch * z.heads, z.seq);
  for (const Attention kernel : {Attention::automatic, Attention::portable}) {
    attention_prepare<E>(exec(), z, kernel);
    const std::size_t bytes = library_bytes();
    expect_quiet("attention_forward",
                 [&] { attention_forward(exec(), y.matrix(), lse.vector(), qkv.matrix(), z, kernel); });
    expect_quiet("attention_backward", [&] {
      attention_backward(exec(), dqkv.matrix(), delta.vector(), dy.matrix(), qkv.matrix(), y.matrix(),
                         lse.vector(), z, kernel);
    });
    EXPECT_EQ(library_bytes(), bytes);
  }
}

}  // namespace
}  // namespace minitaw::kernels
