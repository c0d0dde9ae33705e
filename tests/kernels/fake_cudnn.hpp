// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
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
using cublasLtHandle_t = void*;

enum cudaDataType { CUDA_R_16BF, CUDA_R_32F };

enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor };

inline constexpr cudaError_t cudaSuccess = 0;

inline const char* cudaGetErrorString(cudaError_t) {
  return "an error of CUDA";
}

using cudnnHandle_t = struct FakeHandle*;

enum cudnnStatus_t { CUDNN_STATUS_SUCCESS, CUDNN_STATUS_NOT_INITIALIZED };

struct FakeHandle {
  cudaStream_t stream;
};

/// What tests set and read.
namespace minitaw::test::cudnn {
struct State {
  int capability = 9, handles = 0;
  std::string refusal;             ///< of check_support()
  std::vector<std::string> built;  ///< names of the operations of graphs with plans
  std::set<cudaStream_t> streams;  ///< that graphs ran in
  std::set<void*> workspaces;      ///< that they had
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
  return "NOT_INITIALIZED";
}

inline std::size_t cudnnGetVersion() {
  return 91900;
}

inline cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new FakeHandle{};
  ++minitaw::test::cudnn::state.handles;
  return CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  --minitaw::test::cudnn::state.handles;
  return CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
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

/// A tensor [batch, heads, seq, width].
struct Tensor_attributes {
  Tensor_attributes& set_uid(std::int64_t v) { return uid = v, *this; }

  Tensor_attributes& set_dim(const Sizes& v) { return dim = v, *this; }

  Tensor_attributes& set_stride(const Sizes& v) { return stride = v, *this; }

  Tensor_attributes& set_data_type(DataType_t v) { return type = v, *this; }

  Tensor_attributes& set_output(bool v) { return is_output = v, *this; }

  [[nodiscard]] std::int64_t get_uid() const { return uid; }

  [[nodiscard]] const Sizes& get_dim() const { return dim; }

  [[nodiscard]] const Sizes& get_stride() const { return stride; }

  std::int64_t uid = 0;
  Sizes dim{}, stride{};
  DataType_t type = DataType_t::NOT_SET;
  bool is_output = false;
};

using Tensor = std::shared_ptr<Tensor_attributes>;

struct SDPA_attributes {
  SDPA_attributes& set_name(const std::string& v) { return name = v, *this; }

  SDPA_attributes& set_generate_stats(bool v) { return stats = v, *this; }

  SDPA_attributes& set_attn_scale(float v) { return scale = v, *this; }

  SDPA_attributes& set_diagonal_alignment(DiagonalAlignment_t v) { return alignment = v, *this; }

  SDPA_attributes& set_diagonal_band_right_bound(int v) { return right = v, *this; }

  std::string name{};
  bool stats = false;
  double scale = 1;
  DiagonalAlignment_t alignment = DiagonalAlignment_t::TOP_LEFT;
  std::optional<int> right{};  ///< keys up to query + right; unset: all
};

using SDPA_backward_attributes = SDPA_attributes;

/// One attention, forward or backward.
class Graph {
public:
  Graph& set_io_data_type(DataType_t v) { return io_ = v, *this; }

  Graph& set_intermediate_data_type(DataType_t v) { return inner_ = v, *this; }

  Graph& set_compute_data_type(DataType_t v) {
    return inner_ = inner_ == v ? v : DataType_t::NOT_SET, *this;
  }

  Tensor tensor(const Tensor_attributes& as) {
    return tensors_.emplace_back(std::make_shared<Tensor_attributes>(as));
  }

  std::array<Tensor, 2> sdpa(Tensor q, Tensor k, Tensor v, SDPA_attributes how) {
    q_ = q, k_ = k, v_ = v, how_ = how;
    return {o_ = tensor({}), stats_ = how.stats ? tensor({}) : nullptr};
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
    std::set<std::int64_t> uids;
    for (const Tensor& t : tensors_) {
      if (t->type == DataType_t::NOT_SET)
        t->type = io_;
      if (t->dim.size() != 4 || t->stride.size() != 4 || t->stride[3] != 1)
        return {"a tensor without 4 dimensions"};
      if (!uids.insert(t->uid).second)
        return {"two tensors have one uid"};
    }
    for (const Tensor& t : do_ ? std::vector{dq_, dk_, dv_} : std::vector{o_, stats_})
      if (!t->is_output)
        return {"a result that is not an output"};
    if (io_ != DataType_t::BFLOAT16 || inner_ != DataType_t::FLOAT ||
        stats_->type != DataType_t::FLOAT)
      return {"a type that is not supported"};
    Sizes rows = q_->dim;
    rows[3] = 1;
    const bool fits = k_->dim == v_->dim && o_->dim == q_->dim && q_->dim[1] % k_->dim[1] == 0 &&
                      stats_->dim == rows &&
                      (!do_ || (do_->dim == q_->dim && dq_->dim == q_->dim && dk_->dim == k_->dim &&
                                   dv_->dim == v_->dim));
    return fits ? error_t{} : error_t{"sizes that do not fit each other"};
  }

  error_t build_operation_graph(cudnnHandle_t) { return {}; }

  error_t create_execution_plans(const std::vector<HeurMode_t>&) { return {}; }

  error_t check_support(cudnnHandle_t) { return {minitaw::test::cudnn::state.refusal}; }

  error_t build_plans(cudnnHandle_t) {
    return minitaw::test::cudnn::state.built.push_back(how_.name), error_t{};
  }

  error_t get_workspace_size(std::int64_t& bytes) const {
    return bytes = do_ ? 4096 : 512, error_t{};
  }

  error_t execute(
      cudnnHandle_t handle, std::unordered_map<std::int64_t, void*>& addresses, void* workspace) {
    minitaw::test::cudnn::state.streams.insert(handle->stream);
    minitaw::test::cudnn::state.workspaces.insert(workspace);
    addresses_ = addresses;
    if (addresses.size() != tensors_.size())
      return {"addresses of other tensors"};
    const std::int64_t group = q_->dim[1] / k_->dim[1];
    if (do_)
      fill(dk_), fill(dv_);
    for (std::int64_t b = 0; b < q_->dim[0]; ++b)
      for (std::int64_t h = 0; h < q_->dim[1]; ++h)
        for (std::int64_t s = 0; s < q_->dim[2]; ++s)
          do_ ? backward(b, h, h / group, s) : forward(b, h, h / group, s);
    return {};
  }

private:
  [[nodiscard]] void* at(
      const Tensor& t, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t i) const {
    const std::int64_t element = b * t->stride[0] + h * t->stride[1] + s * t->stride[2] + i;
    return static_cast<char*>(addresses_.at(t->uid)) +
           element * (t->type == DataType_t::FLOAT ? 4 : 2);
  }

  template <class... I>
  [[nodiscard]] double get(const Tensor& t, I... i) const {
    if (t->type == DataType_t::FLOAT)
      return *static_cast<float*>(at(t, i...));
    return minitaw::to_float(*static_cast<minitaw::Bf16*>(at(t, i...)));
  }

  template <class... I>
  void set(double value, const Tensor& t, I... i) const {
    const auto single = static_cast<float>(value);
    if (t->type == DataType_t::FLOAT)
      *static_cast<float*>(at(t, i...)) = single;
    else
      *static_cast<minitaw::Bf16*>(at(t, i...)) = minitaw::to_bf16(single);
  }

  void fill(const Tensor& t) {
    sums_[t->uid].assign(t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3], 0);
  }

  /// Adds in double precision; what has been summed so far is there, rounded.
  void add(double value,
      const Tensor& t,
      std::int64_t b,
      std::int64_t h,
      std::int64_t s,
      std::int64_t i) {
    double& sum = sums_[t->uid][((b * t->dim[1] + h) * t->dim[2] + s) * t->dim[3] + i];
    set(sum += value, t, b, h, s, i);
  }

  [[nodiscard]] double dot(const Tensor& x,
      const Tensor& y,
      std::int64_t b,
      std::int64_t h,
      std::int64_t g,
      std::int64_t s,
      std::int64_t k) const {
    double sum = 0;
    for (std::int64_t i = 0; i < x->dim[3]; ++i)
      sum += get(x, b, h, s, i) * get(y, b, g, k, i);
    return sum;
  }

  [[nodiscard]] std::int64_t keys(std::int64_t s) const {
    const std::int64_t all = k_->dim[2], shift = how_.alignment == DiagonalAlignment_t::BOTTOM_RIGHT
                                                     ? all - q_->dim[2]
                                                     : 0;
    return how_.right ? std::min(all, s + shift + *how_.right + 1) : all;
  }

  void forward(std::int64_t b, std::int64_t h, std::int64_t g, std::int64_t s) {
    std::vector<double> scores;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t k = 0; k < keys(s); ++k) {
      scores.push_back(how_.scale * dot(q_, k_, b, h, g, s, k));
      largest = std::max(largest, scores.back());
    }
    for (const double score : scores)
      sum += std::exp(score - largest);
    set(largest + std::log(sum), stats_, b, h, s, 0);
    for (std::int64_t i = 0; i < v_->dim[3]; ++i) {
      double y = 0;
      for (std::int64_t k = 0; k < keys(s); ++k)
        y += std::exp(scores[k] - largest) / sum * get(v_, b, g, k, i);
      set(y, o_, b, h, s, i);
    }
  }

  void backward(std::int64_t b, std::int64_t h, std::int64_t g, std::int64_t s) {
    const double mean = dot(do_, o_, b, h, h, s, s);
    std::vector<double> dq(q_->dim[3]);
    for (std::int64_t k = 0; k < keys(s); ++k) {
      const double p = std::exp(how_.scale * dot(q_, k_, b, h, g, s, k) - get(stats_, b, h, s, 0));
      const double dscore = how_.scale * p * (dot(do_, v_, b, h, g, s, k) - mean);
      for (std::int64_t i = 0; i < q_->dim[3]; ++i) {
        dq[i] += dscore * get(k_, b, g, k, i);
        add(dscore * get(q_, b, h, s, i), dk_, b, g, k, i);
        add(p * get(do_, b, h, s, i), dv_, b, g, k, i);
      }
    }
    for (std::int64_t i = 0; i < q_->dim[3]; ++i)
      set(dq[i], dq_, b, h, s, i);
  }

  DataType_t io_ = DataType_t::NOT_SET, inner_ = DataType_t::NOT_SET;
  std::vector<Tensor> tensors_;
  Tensor q_, k_, v_, o_, do_, stats_, dq_, dk_, dv_;
  SDPA_attributes how_;
  std::unordered_map<std::int64_t, void*> addresses_;
  std::unordered_map<std::int64_t, std::vector<double>> sums_;
};
}  // namespace graph
}  // namespace cudnn_frontend
