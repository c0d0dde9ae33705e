// miniTaw's double-precision reference and its fp32 kernels against training steps computed with PyTorch.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "kernels/device_matrix.hpp"
#include "model/layout.hpp"
#include "model/reference_weights.hpp"
#include "model/trainer.hpp"

namespace minitaw::model {
namespace {

using test::relative_error;

/// Training steps computed by make_golden.py; the format is described there.
struct Golden {
  struct Weights {
    std::int64_t stride = 1;
    std::vector<double> values;
  };

  Shape shape;
  int micro_batches = 0, steps = 0;
  std::uint64_t seed = 0;
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> gradients;
  std::map<std::string, Weights> weights;
};

void read_shape(std::ifstream& in, Golden& golden) {
  Shape& shape = golden.shape;
  for (std::string key; in >> key && key != "end";) {
    if (key == "ffn") {
      shape.ffn.resize(shape.layers);
      for (std::int64_t& ffn : shape.ffn) in >> ffn;
      continue;
    }
    std::uint64_t value = 0;
    in >> value;
    if (key == "layers") shape.layers = static_cast<int>(value);
    if (key == "hidden") shape.hidden = static_cast<std::int64_t>(value);
    if (key == "heads") shape.heads = static_cast<int>(value);
    if (key == "kv_heads") shape.kv_heads = static_cast<int>(value);
    if (key == "vocab") shape.vocab = static_cast<std::int64_t>(value);
    if (key == "seq") shape.seq = static_cast<std::int64_t>(value);
    if (key == "micro_batch") shape.micro_batch = static_cast<std::int64_t>(value);
    if (key == "micro_batches") golden.micro_batches = static_cast<int>(value);
    if (key == "steps") golden.steps = static_cast<int>(value);
    if (key == "seed") golden.seed = value;
  }
}

std::vector<double> read_values(std::ifstream& in, std::size_t count) {
  std::vector<double> values(count);
  for (double& value : values) in >> value;
  return values;
}

Golden read_golden(const std::string& path) {
  std::ifstream in(path);
  Golden golden;
  for (std::string word, name; in >> word;) {
    std::size_t count = 0;
    if (word == "shape") read_shape(in, golden);
    if (word == "losses") {
      in >> count;
      golden.losses = read_values(in, count);
    }
    if (word == "gradient") {
      in >> name >> count;
      golden.gradients[name] = read_values(in, count);
    }
    if (word == "weights") {
      Golden::Weights weights;
      in >> name >> count >> weights.stride;
      weights.values = read_values(in, count);
      golden.weights[name] = weights;
    }
  }
  EXPECT_EQ(golden.losses.size(), static_cast<std::size_t>(golden.steps)) << path << " is missing or damaged";
  return golden;
}

/// Every stride-th value.
std::vector<double> sampled(const std::vector<double>& values, std::int64_t stride) {
  std::vector<double> some;
  for (std::size_t i = 0; i < values.size(); i += stride) some.push_back(values[i]);
  return some;
}

class GoldenTest : public ::testing::TestWithParam<const char*> {
protected:
  void SetUp() override {
    golden_ = read_golden(std::string(MINITAW_GOLDEN_DIR "/") + GetParam() + ".golden");
    ASSERT_FALSE(golden_.losses.empty());
    layout_ = make_layout(golden_.shape, {golden_.shape.layers, 2});
  }

  void expect_gradients(const ReferenceTensors& got, double tolerance) const {
    std::size_t compared = 0;
    for_each(got, [&](const Tensor& tensor, const std::vector<double>& values) {
      ASSERT_TRUE(golden_.gradients.contains(tensor.name)) << tensor.name;
      EXPECT_LT(relative_error(values, golden_.gradients.at(tensor.name)), tolerance) << tensor.name;
      ++compared;
    });
    EXPECT_EQ(compared, golden_.gradients.size());
  }
  void expect_weights(const ReferenceTensors& got, double tolerance) const {
    for_each(got, [&](const Tensor& tensor, const std::vector<double>& values) {
      const Golden::Weights& expected = golden_.weights.at(tensor.name);
      EXPECT_LT(relative_error(sampled(values, expected.stride), expected.values), tolerance) << tensor.name;
    });
  }

  Golden golden_;
  Layout layout_;

private:
  template <class Check>
  void for_each(const ReferenceTensors& tensors, const Check& check) const {
    for (std::size_t s = 0; s < layout_.shards.size(); ++s)
      for (const Tensor& tensor : layout_.shards[s].tensors)
        check(tensor, test::tensor_of(tensors.shards[s], tensor));
    for (const Tensor& tensor : layout_.embeddings.tensors)
      check(tensor, test::tensor_of(tensors.embeddings, tensor));
  }
};

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::Values("grouped", "two_tokens"),
                         [](const auto& name) { return name.param; });

TEST_P(GoldenTest, ReferenceFollowsPyTorch) {
  Reference reference(layout_, test::initial_weights(layout_, golden_.seed));
  TokenSource source(golden_.shape, "synthetic", golden_.seed);
  std::vector<std::int32_t> tokens(golden_.shape.tokens()), targets = tokens;
  const double scale = 1.0 / static_cast<double>(golden_.shape.tokens() * golden_.micro_batches);
  for (int step = 0; step < golden_.steps; ++step) {
    ReferenceTensors gradient = reference_zeros(layout_);
    double loss = 0;
    for (int m = 0; m < golden_.micro_batches; ++m) {
      source.fill(tokens, targets, step, m * golden_.shape.micro_batch);
      loss += reference.accumulate(gradient, tokens, targets, scale);
    }
    EXPECT_NEAR(loss, golden_.losses[step], 1e-11);
    if (step == 0) expect_gradients(gradient, 1e-11);
    reference.update(gradient, {}, step + 1);
  }
  expect_weights(reference.weights(), 1e-10);
}

TEST_P(GoldenTest, KernelsFollowPyTorch) {
  for (const Recompute recompute : {Recompute::block, Recompute::keep_attention, Recompute::none}) {
    layout_.shape.recompute = recompute;
    test::Trainer trainer(layout_, golden_.micro_batches, golden_.seed);
    for (int step = 0; step < golden_.steps; ++step) {
      EXPECT_NEAR(trainer.gradient(step), golden_.losses[step], 1e-5 * golden_.losses[step]);
      if (step == 0) expect_gradients(trainer.totals(), 1e-5);
      trainer.update({}, step + 1);
    }
    expect_weights(trainer.weights(), 1e-4);
  }
}

}  // namespace
}  // namespace minitaw::model
