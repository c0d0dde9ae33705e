// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>
#include "base/bf16.hpp"

/// Stands in for cuDNN, cudnn-frontend and the types of CUDA's headers, so that cudnn_attention.cpp
/// runs on a processor. A graph computes what cudnn-frontend documents
/// (docs/operations/Attention.md there) of exactly the sizes, strides, types, mask, scale and
/// addresses that it was given; what was not set has the documented default. Plain loops in double
/// precision.

using cudaError_t = int;
using cudaStream_t = struct FakeStream*;

enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor };

inline constexpr cudaError_t cudaSuccess = 0;

inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

inline const char* cudaGetErrorString(cudaError_t) {
  return "an error of CUDA";
}

inline const char* cudaGetErrorName(cudaError_t) {
  return "cudaError";
}

using cudnnHandle_t = cudaStream_t*;

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS };

/// What tests set and read.
namespace minitaw::test::cudnn {
struct State {
  int capability = 9, handles = 0;
  std::string refusal;            ///< of check_support()
  int built = 0;                  ///< graphs with plans
  cudaStream_t stream = nullptr;  ///< that a graph ran in
  void* workspace = nullptr;      ///< that it had
};

inline State state;
}  // namespace minitaw::test::cudnn

inline cudaError_t cudaGetDevice(int* device) {
  return *device = 0;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = minitaw::test::cudnn::state.capability;
  return cudaSuccess;
}

inline const char* cudnnGetErrorString(cudnnStatus_t) {
  return "an error of cuDNN";
}

inline std::size_t cudnnGetVersion() {
  return 91900;
}

inline cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudaStream_t();
  ++minitaw::test::cudnn::state.handles;
  return CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  --minitaw::test::cudnn::state.handles;
  return CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *handle = stream;
  return CUDNN_STATUS_SUCCESS;
}

#define CUDNN_FRONTEND_VERSION 11900
#define CUDNN_FRONTEND_MAJOR_VERSION 1
#define CUDNN_FRONTEND_MINOR_VERSION 19
#define CUDNN_FRONTEND_PATCH_VERSION 0

namespace cudnn_frontend {
enum class DataType_t { NOT_SET, BFLOAT16, FLOAT };
enum class DiagonalAlignment_t { TOP_LEFT, BOTTOM_RIGHT };
enum class HeurMode_t { A };

struct error_t {
  std::string message{};

  [[nodiscard]] bool is_bad() const { return !message.empty(); }

  [[nodiscard]] bool is_good() const { return message.empty(); }

  [[nodiscard]] std::string get_message() const { return message; }
};

namespace graph {
using Sizes = std::vector<std::int64_t>;

#define FAKE_SETTER(Class, member, Type)                                                           \
  Class& set_##member(Type value) {                                                                \
    member = value;                                                                                \
    return *this;                                                                                  \
  }

/// A tensor [batch, heads, seq, width].
struct Tensor_attributes {
  FAKE_SETTER(Tensor_attributes, uid, std::int64_t)
  FAKE_SETTER(Tensor_attributes, dim, const Sizes&)
  FAKE_SETTER(Tensor_attributes, stride, const Sizes&)
  FAKE_SETTER(Tensor_attributes, data_type, DataType_t)
  FAKE_SETTER(Tensor_attributes, output, bool)

  [[nodiscard]] std::int64_t get_uid() const { return uid; }

  [[nodiscard]] const Sizes& get_dim() const { return dim; }

  [[nodiscard]] const Sizes& get_stride() const { return stride; }

  /// The values of one row.
  double* row(std::int64_t b, std::int64_t h, std::int64_t s) {
    return &values[((b * dim[1] + h) * dim[2] + s) * dim[3]];
  }

  /// use(value, its element in memory)
  void each(const auto& use) {
    values.resize(dim.at(0) * dim.at(1) * dim.at(2) * dim.at(3));
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      std::int64_t element = 0, rest = i;
      for (const int axis : {3, 2, 1, 0}) {
        element += rest % dim[axis] * stride.at(axis);
        rest /= dim[axis];
      }
      use(values[i], element);
    }
  }

  std::int64_t uid = 0;
  Sizes dim{}, stride{};
  DataType_t data_type = DataType_t::NOT_SET;
  bool output = false;
  std::vector<double> values{};
};

using Tensor = std::shared_ptr<Tensor_attributes>;

struct SDPA_attributes {
  FAKE_SETTER(SDPA_attributes, name, const std::string&)
  FAKE_SETTER(SDPA_attributes, generate_stats, bool)
  FAKE_SETTER(SDPA_attributes, attn_scale, float)
  FAKE_SETTER(SDPA_attributes, diagonal_alignment, DiagonalAlignment_t)
  FAKE_SETTER(SDPA_attributes, diagonal_band_right_bound, int)

  std::string name{};
  bool generate_stats = false;
  double attn_scale = 1;
  DiagonalAlignment_t diagonal_alignment = DiagonalAlignment_t::TOP_LEFT;
  int diagonal_band_right_bound = 1 << 30;  ///< a query sees keys up to its own place + this
};

using SDPA_backward_attributes = SDPA_attributes;

/// One attention, forward or backward.
class Graph {
public:
  FAKE_SETTER(Graph, io_data_type, DataType_t)
  FAKE_SETTER(Graph, intermediate_data_type, DataType_t)
  FAKE_SETTER(Graph, compute_data_type, DataType_t)

  Tensor tensor(const Tensor_attributes& as) {
    return tensors_.emplace_back(std::make_shared<Tensor_attributes>(as));
  }

  std::array<Tensor, 2> sdpa(Tensor q, Tensor k, Tensor v, SDPA_attributes how) {
    q_ = q, k_ = k, v_ = v, how_ = how;
    return {o_ = tensor({}), stats_ = how.generate_stats ? tensor({}) : nullptr};
  }

  std::array<Tensor, 3> sdpa_backward(Tensor q,
      Tensor k,
      Tensor v,
      Tensor o,
      Tensor slope,
      Tensor stats,
      SDPA_backward_attributes how) {
    q_ = q, k_ = k, v_ = v, o_ = o, do_ = slope, stats_ = stats, how_ = how;
    return {dq_ = tensor({}), dk_ = tensor({}), dv_ = tensor({})};
  }

  error_t validate() {
    for (const Tensor& t : tensors_)
      if (t->data_type == DataType_t::NOT_SET)
        t->data_type = io_data_type;
    if (io_data_type != DataType_t::BFLOAT16 || intermediate_data_type != DataType_t::FLOAT ||
        compute_data_type != DataType_t::FLOAT)
      return {"a type that is not supported"};
    const Sizes &q = q_->dim, &k = k_->dim, rows{q.at(0), q.at(1), q.at(2), 1};
    const bool fits = v_->dim == k && o_->dim == q && stats_->dim == rows &&
                      (!do_ || (do_->dim == q && dq_->dim == q && dk_->dim == k && dv_->dim == k));
    return fits ? error_t{} : error_t{"sizes that do not fit each other"};
  }

  error_t build_operation_graph(cudnnHandle_t) { return {}; }

  error_t create_execution_plans(const std::vector<HeurMode_t>&) { return {}; }

  error_t check_support(cudnnHandle_t) { return {minitaw::test::cudnn::state.refusal}; }

  error_t build_plans(cudnnHandle_t) { return ++minitaw::test::cudnn::state.built, error_t{}; }

  error_t get_workspace_size(std::int64_t& bytes) const {
    return bytes = do_ ? 4096 : 512, error_t{};
  }

  error_t execute(
      cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& addresses, void* workspace) {
    minitaw::test::cudnn::state.stream = *handle;
    minitaw::test::cudnn::state.workspace = workspace;
    for (const Tensor& t : tensors_)
      t->each([&, data = addresses.at(t->uid)](double& value, std::int64_t at) {
        value = t->output ? 0
                : t->data_type == DataType_t::FLOAT
                    ? static_cast<float*>(data)[at]
                    : to_float(static_cast<minitaw::Bf16*>(data)[at]);
      });
    for (std::int64_t b = 0; b < q_->dim[0]; ++b)
      for (std::int64_t h = 0; h < q_->dim[1]; ++h)
        for (std::int64_t s = 0; s < q_->dim[2]; ++s)
          attend(b, h, s);
    for (const Tensor& t : tensors_)
      if (t->output)
        t->each([&, data = addresses.at(t->uid)](double value, std::int64_t at) {
          const auto single = static_cast<float>(value);
          if (t->data_type == DataType_t::FLOAT)
            static_cast<float*>(data)[at] = single;
          else
            static_cast<minitaw::Bf16*>(data)[at] = minitaw::to_bf16(single);
        });
    return {};
  }

private:
  /// Keys that query s sees.
  [[nodiscard]] std::int64_t keys(std::int64_t s) const {
    const std::int64_t all = k_->dim[2];
    if (how_.diagonal_alignment == DiagonalAlignment_t::BOTTOM_RIGHT)
      s += all - q_->dim[2];
    return std::min(all, s + how_.diagonal_band_right_bound + 1);
  }

  /// One query.
  void attend(std::int64_t b, std::int64_t h, std::int64_t s) {
    const std::int64_t width = q_->dim[3], g = h * k_->dim[1] / q_->dim[1];
    const auto dot = [&](const double* x, const double* y) {
      return std::inner_product(x, x + width, y, 0.0);
    };
    double *const q = q_->row(b, h, s), *const o = o_->row(b, h, s);
    double& lse = *stats_->row(b, h, s);
    std::vector<double> scores;
    for (std::int64_t j = 0; j < keys(s); ++j)
      scores.push_back(how_.attn_scale * dot(q, k_->row(b, g, j)));
    if (!do_) {
      const double largest = *std::ranges::max_element(scores);
      for (const double score : scores)
        lse += std::exp(score - largest);
      lse = largest + std::log(lse);
    }
    for (std::int64_t j = 0; j < keys(s); ++j) {
      const double p = std::exp(scores[j] - lse);
      const double* const v = v_->row(b, g, j);
      if (!do_) {
        for (std::int64_t i = 0; i < width; ++i)
          o[i] += p * v[i];
        continue;
      }
      const double *const k = k_->row(b, g, j), *const slope = do_->row(b, h, s);
      const double dscore = how_.attn_scale * p * (dot(slope, v) - dot(slope, o));
      for (std::int64_t i = 0; i < width; ++i) {
        dq_->row(b, h, s)[i] += dscore * k[i];
        dk_->row(b, g, j)[i] += dscore * q[i];
        dv_->row(b, g, j)[i] += p * slope[i];
      }
    }
  }

  DataType_t io_data_type{}, intermediate_data_type{}, compute_data_type{};
  std::vector<Tensor> tensors_;
  Tensor q_, k_, v_, o_, do_, stats_, dq_, dk_, dv_;
  SDPA_attributes how_;
};
}  // namespace graph
}  // namespace cudnn_frontend
