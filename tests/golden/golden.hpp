#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "model/shape.hpp"

namespace minitaw::test {

/// Training steps computed by make_golden.py; the format is described there.
struct Golden {
  struct Weights {
    std::int64_t stride = 1;
    std::vector<double> values;
  };

  model::Shape shape;
  int micro_batches = 0, steps = 0;
  std::uint64_t seed = 0;
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> gradients;
  std::map<std::string, Weights> weights;
};

inline void read_shape(std::ifstream& in, Golden& golden) {
  model::Shape& shape = golden.shape;
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

inline std::vector<double> read_values(std::ifstream& in, std::size_t count) {
  std::vector<double> values(count);
  for (double& value : values) in >> value;
  return values;
}

inline Golden read_golden(const std::string& path) {
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
inline std::vector<double> sampled(const std::vector<double>& values, std::int64_t stride) {
  std::vector<double> some;
  for (std::size_t i = 0; i < values.size(); i += stride) some.push_back(values[i]);
  return some;
}

}  // namespace minitaw::test
