// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cudnn_frontend.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include "base/bf16.hpp"
#include "base/error.hpp"
#include "kernels/vendor/libraries.hpp"

static_assert(CUDNN_FRONTEND_VERSION >= 11300, "cudnn-frontend 1.13 or newer is needed");

namespace minitaw::kernels::detail::vendor {
namespace {
namespace fe = cudnn_frontend;
using Graph = fe::graph::Graph;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using vendor::check;

enum Id : std::int64_t { query = 1, key, value, output, statistics, doutput, dquery, dkey, dvalue };

std::string text(const AttentionPart& p) {
  const AttentionSizes& z = p.z;
  std::string words =
      fmt::format("attention with batch {}, seq {}, heads {}, kv_heads {}, head_dim {}",
          z.batch,
          z.seq,
          z.heads,
          z.kv_heads,
          z.head_dim);
  if (p != AttentionPart(z))
    words += fmt::format(": {} queries from position {}, {} kv_heads",
        p.run.count,
        p.run.position,
        p.kv_heads.count);
  return words;
}

void check(fe::error_t error, const std::string& what) {
  if (error.is_bad())
    throw std::runtime_error(fmt::format("cuDNN: {}: {}", what, error.get_message()));
}

void check(cudnnStatus_t status, const std::string& what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("cuDNN: {}: {}", what, cudnnGetErrorString(status)));
}

/// A tensor [batch, heads, rows, head_dim] whose rows are `stride` elements apart, those of
/// sequences `sequence`.
fe::graph::Tensor_attributes heads_in_rows(const AttentionPart& p,
    Id id,
    int heads,
    int rows,
    std::int64_t stride,
    std::int64_t sequence) {
  return fe::graph::Tensor_attributes()
      .set_uid(id)
      .set_dim({p.z.batch, heads, rows, p.z.head_dim})
      .set_stride({sequence, p.z.head_dim, stride, 1});
}

/// Queries or their gradient; outputs or theirs.
fe::graph::Tensor_attributes queries(const AttentionPart& p, Id id, std::int64_t row) {
  return heads_in_rows(p, id, p.heads().count, p.run.count, row, p.z.seq * row);
}

/// All sequences in one chunk, or one sequence, whose chunks touch.
fe::graph::Tensor_attributes keys(const AttentionPart& p, Id id) {
  const std::int64_t rows = std::max(p.chunk, p.run.end());
  return heads_in_rows(p, id, p.kv_heads.count, p.run.end(), p.kv_stride, rows * p.kv_stride);
}

/// Gradients of keys or values: as those are in qkv, or as CudnnAttention::backward has them.
fe::graph::Tensor_attributes key_gradients(const AttentionPart& p, Id id) {
  const std::int64_t row = 2 * std::int64_t{p.width()};
  return p.own_rows ? heads_in_rows(p, id, p.kv_heads.count, p.run.end(), row, p.run.end() * row)
                    : keys(p, id);
}

/// Natural logarithm of the sum of exp(scaled score) of each row, fp32 [batch, heads, rows].
fe::graph::Tensor_attributes row_statistics(const AttentionPart& p) {
  const int heads = p.heads().count, rows = p.run.count;
  return fe::graph::Tensor_attributes()
      .set_uid(statistics)
      .set_dim({p.z.batch, heads, rows, 1})
      .set_stride({std::int64_t{heads} * rows, rows, 1, 1})
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

/// Sets the options of both directions: causal mask, whose last query sees the last key, and scale.
template <class Attributes>
Attributes causal(Attributes attributes, const AttentionPart& p) {
  using enum fe::DiagonalAlignment_t;
  attributes.set_attn_scale(1.0F / std::sqrt(static_cast<float>(p.z.head_dim)))
      .set_diagonal_alignment(p.run.position > 0 ? BOTTOM_RIGHT : TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  return attributes;
}

std::shared_ptr<Graph> forward_graph(const AttentionPart& p) {
  const auto graph = new_graph();
  const auto [y, lse] = graph->sdpa(graph->tensor(queries(p, query, p.row_of_qkv())),
      graph->tensor(keys(p, key)),
      graph->tensor(keys(p, value)),
      causal(
          fe::graph::SDPA_attributes().set_name("attention_forward").set_generate_stats(true), p));
  write_to(y, queries(p, output, p.row_of_y()));
  write_to(lse, row_statistics(p));
  lse->set_data_type(fe::DataType_t::FLOAT);
  return graph;
}

/// Without its deterministic variant, which keeps B h S^2 elements of workspace.
std::shared_ptr<Graph> backward_graph(const AttentionPart& p) {
  const auto graph = new_graph();
  const auto [dq, dk, dv] = graph->sdpa_backward(graph->tensor(queries(p, query, p.row_of_qkv())),
      graph->tensor(keys(p, key)),
      graph->tensor(keys(p, value)),
      graph->tensor(queries(p, output, p.row_of_y())),
      graph->tensor(queries(p, doutput, p.row_of_y())),
      graph->tensor(row_statistics(p)),
      causal(fe::graph::SDPA_backward_attributes().set_name("attention_backward"), p));
  write_to(dq, queries(p, dquery, p.row_of_qkv()));
  write_to(dk, key_gradients(p, dkey));
  write_to(dv, key_gradients(p, dvalue));
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

/// Parts that differ in their first row or head have equal graphs: those are in the pointers.
AttentionPart of_graph(AttentionPart part) {
  part.run.row = 0;
  part.kv_heads.first = 0;
  return part;
}

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

/// The first query of the part, or its output, in a tensor with such rows.
void* first_query(const AttentionPart& p, const void* pointer, std::int64_t row) {
  return plain(pointer, p.run.row * row + std::int64_t{p.heads().first} * p.z.head_dim);
}
}  // namespace

struct CudnnAttention::Library {
  struct Plans {
    std::shared_ptr<Graph> forward, backward;
    std::size_t workspace;
  };

  const Plans& plans_of(const AttentionPart& part) const {
    const auto at = plans.find(of_graph(part));
    if (at == plans.end())
      throw LogicError("cuDNN has no plans for " + text(part) + ": attention_prepare comes first");
    return at->second;
  }

  Handle handle;
  std::map<AttentionPart, Plans> plans;
};

CudnnAttention::CudnnAttention(Stream stream) : library_(std::make_unique<Library>()) {
  check(cudnnSetStream(library_->handle, stream), "setting the stream");
}

CudnnAttention::~CudnnAttention() = default;

std::size_t CudnnAttention::prepare(const AttentionPart& part) {
  if (!library_->plans.contains(of_graph(part))) {
    const std::shared_ptr<Graph> forward = forward_graph(part), backward = backward_graph(part);
    const std::int64_t bytes =
        std::max(build(*forward, library_->handle, "the forward pass of " + text(part)),
            build(*backward, library_->handle, "the backward pass of " + text(part)));
    library_->plans.emplace(
        of_graph(part), Library::Plans{forward, backward, static_cast<std::size_t>(bytes)});
  }
  return library_->plans_of(part).workspace;
}

void CudnnAttention::forward(const AttentionPart& part,
    void* y,
    float* lse,
    const void* qkv,
    const KeyValues<const void>& from,
    void* workspace) {
  std::unordered_map<std::int64_t, void*> tensors = {
      {query, first_query(part, qkv, part.row_of_qkv())},
      {key, plain(from.keys)},
      {value, plain(from.values)},
      {output, first_query(part, y, part.row_of_y())},
      {statistics, lse}};
  check(library_->plans_of(part).forward->execute(library_->handle, tensors, workspace),
      "the forward pass of " + text(part));
}

void CudnnAttention::backward(const AttentionPart& part,
    void* dqkv,
    void* gradients,
    const void* dy,
    const void* qkv,
    const KeyValues<const void>& from,
    const void* y,
    const float* lse,
    void* workspace) {
  const KeyValues<Bf16> fused = part.in(static_cast<Bf16*>(dqkv));
  std::unordered_map<std::int64_t, void*> tensors = {
      {query, first_query(part, qkv, part.row_of_qkv())},
      {key, plain(from.keys)},
      {value, plain(from.values)},
      {output, first_query(part, y, part.row_of_y())},
      {doutput, first_query(part, dy, part.row_of_y())},
      {statistics, plain(lse)},
      {dquery, first_query(part, dqkv, part.row_of_qkv())},
      {dkey, part.own_rows ? gradients : fused.keys},
      {dvalue, part.own_rows ? plain(gradients, part.width()) : fused.values}};
  check(library_->plans_of(part).backward->execute(library_->handle, tensors, workspace),
      "the backward pass of " + text(part));
}

namespace {
std::string find_reason_against(const AttentionPart& part) {
  if (part.z.head_dim % 8 != 0 || part.z.head_dim > 128)
    return "head_dim must be a multiple of 8, at most 128";
  if (part.z.batch > 1 && part.run.end() > part.chunk)
    return "keys and values of several sequences lie in chunks (micro_batch = 1 avoids that)";
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "asking for its capability");
  if (major < 8)
    return fmt::format("the device has compute capability {}.x, and 8.0 is needed", major);
  const Handle handle;
  fe::error_t error = try_support(*forward_graph(part), handle);
  if (error.is_good())
    error = try_support(*backward_graph(part), handle);
  return error.is_good() ? "" : error.get_message();
}
}  // namespace

std::string reason_against_cudnn(const AttentionPart& part) {
  static std::mutex mutex;
  static std::map<AttentionPart, std::string> answers;
  const std::lock_guard lock(mutex);
  const AttentionPart graph = of_graph(part);
  const auto at = answers.find(graph);
  return at != answers.end() ? at->second
                             : answers.emplace(graph, find_reason_against(part)).first->second;
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
}  // namespace minitaw::kernels::detail::vendor
