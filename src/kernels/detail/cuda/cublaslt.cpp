#include "kernels/detail/cuda/cublaslt.hpp"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

namespace minitaw::kernels::detail::cuda {

namespace {

std::string text(const ProductKey& key) {
  return fmt::format("the matrix product [{}, {}] x [{}, {}]{}{}", key.m, key.k, key.k, key.n,
                     key.element == CUDA_R_32F ? " in fp32" : " in bf16",
                     key.result == CUDA_R_32F ? " to fp32" : " to bf16");
}

void check(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "a preference");
}

/// A row-major matrix is the transpose of a column-major one, which is what the library multiplies.
void describe(cublasLtMatrixLayout_t layout, cudaDataType type, std::int64_t rows, std::int64_t columns) {
  check(cublasLtMatrixLayoutInit(layout, type, static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), columns),
        "a layout");
}

void describe(cublasLtMatmulDesc_t operation, bool transposed_first, bool transposed_second) {
  check(cublasLtMatmulDescInit(operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "an operation");
  const cublasOperation_t first = transposed_first ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = transposed_second ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
        "TRANSA");
  check(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
        "TRANSB");
}

/// Sums in fp32 and one order: no parts of a sum may pass through the type of the result.
void describe(cublasLtMatmulPreference_t preference, const ProductKey& key) {
  check(cublasLtMatmulPreferenceInit(preference), "preferences");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{cublas_workspace_bytes});
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.alignment_b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.alignment_a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.alignment_c));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.alignment_c));
}

}  // namespace

CublasLt::CublasLt() { check(cublasLtCreate(&handle_), "starting the library"); }

CublasLt::~CublasLt() { (void)cublasLtDestroy(handle_); }

/// The transpose of c is op(b)^T op(a)^T: a and b change places, and column-major eyes see them transposed
/// already.
CublasLt::Plan CublasLt::make_plan(const ProductKey& key) {
  Plan plan;
  describe(&plan.operation, key.transposed_b, key.transposed_a);
  describe(&plan.first, key.element, key.transposed_b ? key.n : key.k, key.transposed_b ? key.k : key.n);
  describe(&plan.second, key.element, key.transposed_a ? key.k : key.m, key.transposed_a ? key.m : key.k);
  describe(&plan.result, key.result, key.m, key.n);
  cublasLtMatmulPreferenceOpaque_t preference{};
  describe(&preference, key);

  std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &plan.operation, &plan.first, &plan.second, &plan.result, &plan.result, &preference,
      static_cast<int>(found.size()), found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return plan;
  check(status, "choosing an algorithm for " + text(key));
  for (int i = 0; i < count && !plan.possible; ++i) {
    plan.possible =
        found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= cublas_workspace_bytes;
    if (plan.possible) plan.algorithm = found[i].algo;
  }
  return plan;
}

CublasLt::Plan& CublasLt::plan_of(const ProductKey& key) {
  const auto at = plans_.find(key);
  return at != plans_.end() ? at->second : plans_.emplace(key, make_plan(key)).first->second;
}

bool CublasLt::multiply(cudaStream_t stream, const Workspace& workspace, const ProductKey& key,
                        const Product& product) {
  Plan& plan = plan_of(key);
  if (!plan.possible) return false;
  const float alpha = 1;
  check(cublasLtMatmul(handle_, &plan.operation, &alpha, product.b, &plan.first, product.a, &plan.second,
                       &product.beta, product.c, &plan.result, product.c, &plan.result, &plan.algorithm,
                       workspace.data(), cublas_workspace_bytes, stream),
        text(key));
  return true;
}

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace minitaw::kernels::detail::cuda
