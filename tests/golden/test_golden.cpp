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
  int micro_batches, steps;
  std::uint64_t seed;
};

const Case cases[] = {
    {"grouped", {3, 24, 6, 2, 7, 11, 19, 2}, 2, 3, 7},
    {"two_tokens", {1, 20, 5, 5, 11, 13, 2, 4}, 2, 3, (std::uint64_t{1} << 40) + 5},
};

/// Values by their names: "grouped/losses", "grouped/gradient.layers.0.wqkv".
std::map<std::string, std::vector<double>> read_golden() {
  std::ifstream in(MINITAW_GOLDEN_DIR "/steps.golden", std::ios::binary);
  std::vector<std::pair<std::string, std::size_t>> sizes;
  for (std::string name; in >> name && name != "values";)
    in >> sizes.emplace_back(name, 0).second;
  in.ignore();
  std::map<std::string, std::vector<double>> golden;
  for (const auto& [name, size] : sizes) {
    std::vector<double>& values = golden[name];
    values.resize(size);
    in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(8 * size));
  }
  EXPECT_TRUE(in && in.peek() == EOF) << "missing or damaged data";
  return golden;
}

/// What the data have of a tensor: entries, and a sum over all of them.
std::vector<double> digest(const Doubles& part, const Tensor& tensor, std::int64_t every) {
  std::vector<double> kept;
  double sum = 0;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    const double value = part[tensor.offset + i];
    sum += value * std::cos(static_cast<double>(i));
    if (tensor.is_gain() || (i / tensor.cols + i % tensor.cols) % every == 0)
      kept.push_back(value);
  }
  kept.push_back(sum);
  return kept;
}

class GoldenTest : public ::testing::TestWithParam<Case> {
protected:
  [[nodiscard]] const std::vector<double>& golden(const std::string& name) const {
    return golden_.at(case_.name + ("/" + name));
  }

  void expect_gradient(const ReferenceTensors& got, double tolerance) const {
    expect("gradient.", got, 3, tolerance);
  }

  void expect_weights(const ReferenceTensors& got, double tolerance) const {
    expect("weights.", got, 11, tolerance);
  }

  const Case case_ = GetParam();
  Layout layout_ = make_layout(case_.shape, {case_.shape.layers, 2});

private:
  void expect(const std::string& kind,
      const ReferenceTensors& got,
      std::int64_t every,
      double tolerance) const {
    for (std::size_t p = 0; const Flat* part : layout_.parts()) {
      for (const Tensor& tensor : part->tensors)
        EXPECT_LT(
            relative_error(digest(got[p], tensor, every), golden(kind + tensor.name)), tolerance)
            << kind << tensor.name;
      ++p;
    }
  }

  const std::map<std::string, std::vector<double>> golden_ = read_golden();
};

INSTANTIATE_TEST_SUITE_P(
    All, GoldenTest, ::testing::ValuesIn(cases), [](const auto& one) { return one.param.name; });

TEST_P(GoldenTest, ReferenceFollowsPyTorch) {
  Reference reference(layout_, initial_weights(layout_, case_.seed));
  TokenSource source(case_.shape, "synthetic", case_.seed);
  std::vector<std::int32_t> tokens(case_.shape.tokens()), targets = tokens;
  const double scale = 1.0 / static_cast<double>(case_.shape.tokens() * case_.micro_batches);
  for (int step = 0; step < case_.steps; ++step) {
    ReferenceTensors gradient = reference_zeros(layout_);
    double loss = 0;
    for (int m = 0; m < case_.micro_batches; ++m) {
      source.fill(tokens, targets, step, m * case_.shape.micro_batch, runs_of(case_.shape));
      loss += reference.accumulate(gradient, tokens, targets, scale);
    }
    EXPECT_NEAR(loss, golden("losses").at(step), 1e-11);
    if (step == 0)
      expect_gradient(gradient, 1e-11);
    reference.update(gradient, {}, step + 1);
  }
  expect_weights(reference.weights(), 1e-10);
}

TEST_P(GoldenTest, KernelsFollowPyTorch) {
  for (const Recompute recompute : {Recompute::block, Recompute::keep_attention, Recompute::none}) {
    layout_.shape.recompute = recompute;
    test::TrainingLoop loop(layout_, case_.micro_batches, case_.seed);
    for (int step = 0; step < case_.steps; ++step) {
      EXPECT_NEAR(loop.gradient(step), golden("losses").at(step), 1e-5 * golden("losses").at(step));
      if (step == 0)
        expect_gradient(loop.totals(), 1e-5);
      loop.update({}, step + 1);
    }
    expect_weights(loop.weights(), 1e-4);
  }
}
}  // namespace
}  // namespace minitaw::model
