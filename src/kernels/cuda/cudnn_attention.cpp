// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <cudnn_frontend.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include "base/error.hpp"
#include "kernels/cuda/libraries.hpp"

static_assert(CUDNN_FRONTEND_VERSION >= 11300, "cudnn-frontend 1.13 or newer is needed");

namespace minitaw::kernels::detail::cuda {
namespace {
namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using detail::cuda::check;

enum Id : std::int64_t { query = 1, key, value, output, statistics, doutput, dquery, dkey, dvalue };

std::string text(const AttentionSizes& z) {
  return fmt::format("attention with batch {}, seq {}, heads {}, kv_heads {}, head_dim {}",
      z.batch,
      z.seq,
      z.heads,
      z.kv_heads,
      z.head_dim);
}

void check(fe::error_t error, const std::string& what) {
  if (error.is_bad())
    throw std::runtime_error(fmt::format("cuDNN: {}: {}", what, error.get_message()));
}

void check(cudnnStatus_t status, const std::string& what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("cuDNN: {}: {}", what, cudnnGetErrorString(status)));
}

/// Offsets of the parts of a token's row in the fused projection and in the output, in elements.
struct Places {
  explicit Places(const AttentionSizes& z)
      : key(std::int64_t{z.heads} * z.head_dim),
        value(key + std::int64_t{z.kv_heads} * z.head_dim),
        stride(value + std::int64_t{z.kv_heads} * z.head_dim) {}

  std::int64_t key, value, stride;
};

/// A tensor [batch, heads, seq, head_dim] whose tokens are `row` elements apart.
fe::graph::Tensor_attributes heads_in_rows(
    const AttentionSizes& z, Id id, int heads, std::int64_t row) {
  return fe::graph::Tensor_attributes()
      .set_uid(id)
      .set_dim({z.batch, heads, z.seq, z.head_dim})
      .set_stride({z.seq * row, z.head_dim, row, 1});
}

/// Natural logarithm of the sum of exp(scaled score) of each row, fp32 [batch, heads, seq].
fe::graph::Tensor_attributes row_statistics(const AttentionSizes& z) {
  return fe::graph::Tensor_attributes()
      .set_uid(statistics)
      .set_dim({z.batch, z.heads, z.seq, 1})
      .set_stride({std::int64_t{z.heads} * z.seq, z.seq, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

/// An output gets the shape that was written down for it.
void write_to(const Tensor& tensor, const fe::graph::Tensor_attributes& as) {
  tensor->set_output(true).set_uid(as.get_uid()).set_dim(as.get_dim()).set_stride(as.get_stride());
}

std::shared_ptr<Graph> new_graph() {
  auto graph = std::make_shared<Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

/// Sets the options of both directions: causal mask, scale.
template <class Attributes>
Attributes causal(Attributes attributes, const AttentionSizes& z) {
  attributes.set_attn_scale(1.0F / std::sqrt(static_cast<float>(z.head_dim)))
      .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  return attributes;
}

std::shared_ptr<Graph> forward_graph(const AttentionSizes& z) {
  const Places at(z);
  const auto graph = new_graph();
  const auto [y, lse] = graph->sdpa(graph->tensor(heads_in_rows(z, query, z.heads, at.stride)),
      graph->tensor(heads_in_rows(z, key, z.kv_heads, at.stride)),
      graph->tensor(heads_in_rows(z, value, z.kv_heads, at.stride)),
      causal(
          fe::graph::SDPA_attributes().set_name("attention_forward").set_generate_stats(true), z));
  write_to(y, heads_in_rows(z, output, z.heads, at.key));
  write_to(lse, row_statistics(z));
  lse->set_data_type(fe::DataType_t::FLOAT);
  return graph;
}

/// Without its deterministic variant, which keeps B h S^2 elements of workspace.
std::shared_ptr<Graph> backward_graph(const AttentionSizes& z) {
  const Places at(z);
  const auto graph = new_graph();
  const auto [dq, dk, dv] =
      graph->sdpa_backward(graph->tensor(heads_in_rows(z, query, z.heads, at.stride)),
          graph->tensor(heads_in_rows(z, key, z.kv_heads, at.stride)),
          graph->tensor(heads_in_rows(z, value, z.kv_heads, at.stride)),
          graph->tensor(heads_in_rows(z, output, z.heads, at.key)),
          graph->tensor(heads_in_rows(z, doutput, z.heads, at.key)),
          graph->tensor(row_statistics(z)),
          causal(fe::graph::SDPA_backward_attributes().set_name("attention_backward"), z));
  write_to(dq, heads_in_rows(z, dquery, z.heads, at.stride));
  write_to(dk, heads_in_rows(z, dkey, z.kv_heads, at.stride));
  write_to(dv, heads_in_rows(z, dvalue, z.kv_heads, at.stride));
  return graph;
}

class Handle {
public:
  Handle() { check(cudnnCreate(&handle_), "starting the library"); }

  ~Handle() { (void)cudnnDestroy(handle_); }

  Handle& operator=(Handle&&) = delete;

  operator cudnnHandle_t() const { return handle_; }

private:
  cudnnHandle_t handle_ = nullptr;
};

/// Everything but the compilation of kernels.
fe::error_t try_support(Graph& graph, cudnnHandle_t handle) {
  fe::error_t error = graph.validate();
  if (error.is_good())
    error = graph.build_operation_graph(handle);
  if (error.is_good())
    error = graph.create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good())
    error = graph.check_support(handle);
  return error;
}

std::int64_t build(Graph& graph, cudnnHandle_t handle, const std::string& what) {
  check(try_support(graph, handle), what);
  check(graph.build_plans(handle), what);
  std::int64_t bytes = 0;
  check(graph.get_workspace_size(bytes), what);
  return bytes;
}

/// The library reads its inputs only, but takes all pointers alike.
void* plain(const void* pointer, std::int64_t elements = 0) {
  constexpr std::int64_t bytes_of_bf16 = 2;
  return const_cast<char*>(static_cast<const char*>(pointer)) + elements * bytes_of_bf16;
}
}  // namespace

struct CudnnAttention::Library {
  struct Plans {
    std::shared_ptr<Graph> forward, backward;
    std::size_t workspace;
  };

  [[nodiscard]] const Plans& plans_of(const AttentionSizes& sizes) const {
    const auto at = plans.find(sizes);
    if (at == plans.end())
      throw LogicError("cuDNN has no plans for " + text(sizes) + ": attention_prepare comes first");
    return at->second;
  }

  Handle handle;
  std::map<AttentionSizes, Plans> plans;
};

CudnnAttention::CudnnAttention(cudaStream_t stream) : library_(std::make_unique<Library>()) {
  check(cudnnSetStream(library_->handle, stream), "setting the stream");
}

CudnnAttention::~CudnnAttention() = default;

std::size_t CudnnAttention::prepare(const AttentionSizes& shape) {
  if (!library_->plans.contains(shape)) {
    const std::shared_ptr<Graph> forward = forward_graph(shape), backward = backward_graph(shape);
    const std::int64_t bytes =
        std::max(build(*forward, library_->handle, "the forward pass of " + text(shape)),
            build(*backward, library_->handle, "the backward pass of " + text(shape)));
    library_->plans[shape] = {forward, backward, static_cast<std::size_t>(bytes)};
  }
  return library_->plans_of(shape).workspace;
}

void CudnnAttention::forward(
    const AttentionSizes& shape, void* y, float* lse, const void* qkv, void* workspace) {
  const Places at(shape);
  std::unordered_map<std::int64_t, void*> tensors = {{query, plain(qkv)},
      {key, plain(qkv, at.key)},
      {value, plain(qkv, at.value)},
      {output, y},
      {statistics, lse}};
  check(library_->plans_of(shape).forward->execute(library_->handle, tensors, workspace),
      "the forward pass of " + text(shape));
}

void CudnnAttention::backward(const AttentionSizes& shape,
    void* dqkv,
    const void* dy,
    const void* qkv,
    const void* y,
    const float* lse,
    void* workspace) {
  const Places at(shape);
  std::unordered_map<std::int64_t, void*> tensors = {{query, plain(qkv)},
      {key, plain(qkv, at.key)},
      {value, plain(qkv, at.value)},
      {output, plain(y)},
      {doutput, plain(dy)},
      {statistics, plain(lse)},
      {dquery, dqkv},
      {dkey, plain(dqkv, at.key)},
      {dvalue, plain(dqkv, at.value)}};
  check(library_->plans_of(shape).backward->execute(library_->handle, tensors, workspace),
      "the backward pass of " + text(shape));
}

namespace {
std::string find_reason_against(const AttentionSizes& shape) {
  if (shape.head_dim % 8 != 0 || shape.head_dim > 128)
    return "head_dim must be a multiple of 8, at most 128";
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "asking for its capability");
  if (major < 8)
    return fmt::format("the device has compute capability {}.x, and 8.0 is needed", major);
  const Handle handle;
  fe::error_t error = try_support(*forward_graph(shape), handle);
  if (error.is_good())
    error = try_support(*backward_graph(shape), handle);
  return error.is_good() ? "" : error.get_message();
}
}  // namespace

std::string reason_against_cudnn(const AttentionSizes& shape) {
  static std::mutex mutex;
  static std::map<AttentionSizes, std::string> answers;
  const std::lock_guard lock(mutex);
  const auto at = answers.find(shape);
  return at != answers.end() ? at->second
                             : answers.emplace(shape, find_reason_against(shape)).first->second;
}

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string cudnn_frontend_version() {
  return fmt::format("{}.{}.{}",
      CUDNN_FRONTEND_MAJOR_VERSION,
      CUDNN_FRONTEND_MINOR_VERSION,
      CUDNN_FRONTEND_PATCH_VERSION);
}
}  // namespace minitaw::kernels::detail::cuda
