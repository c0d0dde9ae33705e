// miniTaw's double-precision reference and its fp32 kernels against training steps computed with
// PyTorch.
#include <cmath>
#include <fstream>
#include <map>
#include "kernels/device_matrix.hpp"
#include "model/layout.hpp"
#include "model/training_loop.hpp"

namespace minitaw::model {
namespace {
using test::Doubles, test::relative_error;

/// A case of make_golden.py.
struct Case {
  const char* name;
  Shape shape;
  std::uint64_t seed;
};

Shape with_heads(Shape shape, std::int64_t head_dim) {
  shape.given_head_dim = head_dim;
  return shape;
}

Shape tied(Shape shape) {
  shape.tied = true;
  return shape;
}

constexpr int steps = 3, micro_batches = 2;
const Case cases[] = {
    {"grouped", {3, 24, 6, 2, 7, 11, 19, 2}, 7},
    {"two_tokens", {1, 20, 5, 5, 11, 13, 2, 4}, (std::uint64_t{1} << 40) + 5},
    {"wide_heads", with_heads({2, 20, 6, 3, 9, 13, 17, 1}, 10), 3},
    {"tied", tied({2, 20, 5, 5, 11, 13, 17, 3}), 9},
};

/// What the data have of a tensor: entries, and a sum over all of them.
Doubles digest(const Doubles& part, const Tensor& tensor, std::int64_t every) {
  Doubles kept;
  double sum = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double value = part[tensor.offset + i];
    sum += value * std::cos(i);
    if (tensor.is_gain() || (i / tensor.cols + i % tensor.cols) % every == 0)
      kept.push_back(value);
  }
  kept.push_back(sum);
  return kept;
}

struct GoldenTest : ::testing::TestWithParam<Case> {
  GoldenTest() {
    const char* const file = MINITAW_GOLDEN_DIR "/steps.golden";
    std::ifstream names(file), values(file, std::ios::binary);
    std::string name;
    while (std::getline(values, name) && name != "values")
      ;
    for (std::int64_t size = 0; names >> name && name != "values";) {
      names >> size;
      golden_[name].resize(size);
      values.read(reinterpret_cast<char*>(golden_[name].data()), 8 * size);
    }
    EXPECT_TRUE(values && values.peek() == EOF) << "missing or damaged data";
  }

  /// By the end of a name: "losses", "gradient.layers.0.wqkv".
  [[nodiscard]] const Doubles& golden(const std::string& name) const {
    return golden_.at(case_.name + ("/" + name));
  }

  void expect(const std::string& kind, const ReferenceTensors& got, double tolerance) const {
    for (std::size_t p = 0; const Flat* part : layout_.parts()) {
      for (const Tensor& tensor : part->tensors) {
        const Doubles found = digest(got[p], tensor, kind == "weights." ? 11 : 3);
        EXPECT_LT(relative_error(found, golden(kind + tensor.name)), tolerance)
            << kind << tensor.name;
      }
      ++p;
    }
  }

  const Case case_ = GetParam();
  Layout layout_ = make_layout(case_.shape, {case_.shape.layers, 2});
  std::map<std::string, Doubles> golden_;
};

INSTANTIATE_TEST_SUITE_P(
    All, GoldenTest, ::testing::ValuesIn(cases), [](const auto& one) { return one.param.name; });

TEST_P(GoldenTest, ReferenceFollowsPyTorch) {
  Reference reference(layout_, initial_weights(layout_, case_.seed));
  TokenSource source(case_.shape, "synthetic", case_.seed);
  std::vector<std::int32_t> tokens(case_.shape.tokens()), targets = tokens;
  const double scale = 1.0 / static_cast<double>(case_.shape.tokens() * micro_batches);
  for (int step = 0; step < steps; ++step) {
    ReferenceTensors gradient = reference_zeros(layout_);
    double loss = 0;
    for (int m = 0; m < micro_batches; ++m) {
      source.fill(tokens, targets, step, m * case_.shape.micro_batch, runs_of(case_.shape));
      loss += reference.accumulate(gradient, tokens, targets, scale);
    }
    EXPECT_NEAR(loss, golden("losses").at(step), 1e-11);
    if (step == 0)
      expect("gradient.", gradient, 1e-11);
    reference.update(gradient, {}, step + 1);
  }
  expect("weights.", reference.weights(), 1e-10);
}

TEST_P(GoldenTest, KernelsFollowPyTorch) {
  for (const Recompute recompute : {Recompute::block, Recompute::keep_attention, Recompute::none}) {
    layout_.shape.recompute = recompute;
    test::TrainingLoop loop(layout_, micro_batches, case_.seed);
    for (int step = 0; step < steps; ++step) {
      const double loss = golden("losses").at(step);
      EXPECT_NEAR(loop.gradient(step), loss, 1e-5 * loss);
      if (step == 0)
        expect("gradient.", loop.totals(), 1e-5);
      loop.update({}, step + 1);
    }
    expect("weights.", loop.weights(), 1e-4);
  }
}
}  // namespace
}  // namespace minitaw::model
