// miniTaw's double-precision reference and its fp32 kernels against training steps computed with
// PyTorch.
#include <iterator>
#include <sstream>
#include "kernels/device_matrix.hpp"
#include "model/layout.hpp"
#include "model/training_loop.hpp"

namespace minitaw::model {
namespace {
using test::relative_error;

/// A case of make_golden.py.
struct Case {
  const char* name;
  Shape shape;
  int micro_batches, steps;
  std::uint64_t seed;
};

const Case cases[] = {
    {"grouped", {3, 24, 6, 2, 13, 33, 21, 2}, 2, 3, 7},
    {"two_tokens", {1, 20, 5, 5, 31, 15, 2, 4}, 2, 3, (std::uint64_t{1} << 40) + 5},
};
constexpr std::int64_t stride = 7;  ///< of the weights

/// Values by their names: "losses", "gradient layers.0.wqkv", "weights norm".
std::map<std::string, std::vector<double>> read_golden(const std::string& path) {
  std::map<std::string, std::vector<double>> golden;
  std::ifstream in(path);
  for (std::string name; std::getline(in, name, ':');) {
    std::string line;
    std::getline(in, line);
    std::istringstream values(line);
    golden[name].assign(std::istream_iterator<double>(values), {});
  }
  return golden;
}

class GoldenTest : public ::testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    ASSERT_EQ(losses().size(), static_cast<std::size_t>(case_.steps)) << "missing or damaged data";
  }

  [[nodiscard]] const std::vector<double>& losses() { return golden_["losses"]; }

  /// Tensors of a kind, of which the data have every `every`-th element.
  void expect(const std::string& kind,
      const ReferenceTensors& got,
      std::int64_t every,
      double tolerance) const {
    for (std::size_t p = 0; const Flat* part : layout_.parts()) {
      for (const Tensor& tensor : part->tensors) {
        std::vector<double> values;
        for (std::int64_t i = 0; i < tensor.size(); i += every)
          values.push_back(got[p][tensor.offset + i]);
        EXPECT_LT(relative_error(values, golden_.at(kind + tensor.name)), tolerance)
            << kind << tensor.name;
      }
      ++p;
    }
  }

  const Case case_ = GetParam();
  Layout layout_ = make_layout(case_.shape, {case_.shape.layers, 2});
  std::map<std::string, std::vector<double>> golden_ =
      read_golden(std::string(MINITAW_GOLDEN_DIR "/") + case_.name + ".golden");
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
    EXPECT_NEAR(loss, losses()[step], 1e-11);
    if (step == 0)
      expect("gradient ", gradient, 1, 1e-11);
    reference.update(gradient, {}, step + 1);
  }
  expect("weights ", reference.weights(), stride, 1e-10);
}

TEST_P(GoldenTest, KernelsFollowPyTorch) {
  for (const Recompute recompute : {Recompute::block, Recompute::keep_attention, Recompute::none}) {
    layout_.shape.recompute = recompute;
    test::TrainingLoop loop(layout_, case_.micro_batches, case_.seed);
    for (int step = 0; step < case_.steps; ++step) {
      EXPECT_NEAR(loop.gradient(step), losses()[step], 1e-5 * losses()[step]);
      if (step == 0)
        expect("gradient ", loop.totals(), 1, 1e-5);
      loop.update({}, step + 1);
    }
    expect("weights ", loop.weights(), stride, 1e-4);
  }
}
}  // namespace
}  // namespace minitaw::model
