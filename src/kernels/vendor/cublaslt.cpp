// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cublasLt.h>
#include <fmt/format.h>
#include <map>
#include <optional>
#include "kernels/vendor/libraries.hpp"

namespace minitaw::kernels::detail::vendor {
namespace {
using vendor::check;

cudaDataType type_of(bool narrow) {
  return narrow ? CUDA_R_16BF : CUDA_R_32F;
}

const char* name_of(bool narrow) {
  return narrow ? "bf16" : "fp32";
}

std::string text(const ProductKey& key) {
  return fmt::format("{} to {}, m {}, n {}, k {}{}{}{}",
      name_of(key.narrow),
      name_of(key.narrow_result),
      key.m,
      key.n,
      key.k,
      key.transposed_a ? ", transposed a" : "",
      key.transposed_b ? ", transposed b" : "",
      key.adds ? ", beta 1" : "");
}

void check(cublasStatus_t status, const std::string& what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(
        fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

template <class T>
void set(cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute,
    T value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
      "a preference");
}

/// A row-major matrix is the transpose of a column-major one, which is what the library multiplies.
void describe(
    cublasLtMatrixLayout_t layout, cudaDataType type, std::int64_t rows, std::int64_t columns) {
  check(cublasLtMatrixLayoutInit(layout,
            type,
            static_cast<std::uint64_t>(columns),
            static_cast<std::uint64_t>(rows),
            columns),
      "a layout");
}

void describe(cublasLtMatmulDesc_t operation, bool transposed_first, bool transposed_second) {
  check(cublasLtMatmulDescInit(operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "an operation");
  const cublasOperation_t first = transposed_first ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = transposed_second ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(
      cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
      "TRANSA");
  check(cublasLtMatmulDescSetAttribute(
            operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
      "TRANSB");
}

/// Sums in fp32 and one order: no parts of a sum may pass through the type of the result.
void describe(cublasLtMatmulPreference_t preference, const ProductKey& key) {
  check(cublasLtMatmulPreferenceInit(preference), "preferences");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{product_workspace_bytes});
  set(preference,
      CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignment_c);
}

/// A product ready to be enqueued, and the algorithms that the library offers, its favourite first.
struct Plan {
  /// The transpose of c is op(b)^T op(a)^T, and column-major eyes see a and b transposed already.
  Plan(cublasLtHandle_t of_queue, const ProductKey& key) : handle(of_queue) {
    describe(&operation, key.transposed_b, key.transposed_a);
    const cudaDataType factors = type_of(key.narrow);
    describe(&first, factors, key.transposed_b ? key.n : key.k, key.transposed_b ? key.k : key.n);
    describe(&second, factors, key.transposed_a ? key.k : key.m, key.transposed_a ? key.m : key.k);
    describe(&result, type_of(key.narrow_result), key.m, key.n);
    cublasLtMatmulPreferenceOpaque_t preference{};
    describe(&preference, key);

    std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle,
        &operation,
        &first,
        &second,
        &result,
        &result,
        &preference,
        static_cast<int>(found.size()),
        found.data(),
        &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED)
      return;
    check(status, "choosing an algorithm for " + text(key));
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS &&
          found[i].workspaceSize <= product_workspace_bytes)
        offered.push_back({found[i].algo});
    if (!offered.empty())
      algorithm = offered.front();
  }

  cublasStatus_t enqueue(Stream stream, void* workspace, const Product& product) {
    const float alpha = 1;
    return cublasLtMatmul(handle,
        &operation,
        &alpha,
        product.b,
        &first,
        product.a,
        &second,
        &product.beta,
        product.c,
        &result,
        product.c,
        &result,
        &algorithm.value,
        workspace,
        product_workspace_bytes,
        stream);
  }

  /// Milliseconds, or nothing if the library cannot run it. The first call of an algorithm may load
  /// its code.
  std::optional<float> time(Stream stream, void* workspace, const Product& product) {
    constexpr int calls = 3;
    if (enqueue(stream, workspace, product) != CUBLAS_STATUS_SUCCESS)
      return {};
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "making an event");
    check(cudaEventCreate(&end), "making an event");
    check(cudaEventRecord(begin, stream), "recording an event");
    for (int call = 0; call < calls; ++call)
      check(enqueue(stream, workspace, product), "timing a product");
    check(cudaEventRecord(end, stream), "recording an event");
    check(cudaEventSynchronize(end), "timing a product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "timing a product");
    (void)cudaEventDestroy(begin);
    (void)cudaEventDestroy(end);
    return milliseconds / calls;
  }

  void choose(Stream stream, void* workspace, const Product& product) {
    constexpr float noise = 0.99F;  // what is not faster by more than 1 % is not faster
    std::size_t fastest = 0;
    float of_first = 0, best = 0;
    for (std::size_t i = 0; i < offered.size(); ++i) {
      algorithm = offered[i];
      const std::optional<float> measured = time(stream, workspace, product);
      if (!measured)
        continue;
      if (best == 0)
        of_first = best = *measured, fastest = i;
      else if (*measured < noise * best)
        best = *measured, fastest = i;
    }
    algorithm = offered[fastest];
    choice = fmt::format("algorithm {} of {}, {:.1f} % faster than the first",
        fastest + 1,
        offered.size(),
        best > 0 ? 100 * (of_first / best - 1) : 0);
  }

  /// A type with a name: nvcc 13 does not survive a vector of the library's, which has none.
  struct Algorithm {
    cublasLtMatmulAlgo_t value;
  };

  cublasLtHandle_t handle;
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t first{}, second{}, result{};
  std::vector<Algorithm> offered;
  Algorithm algorithm{};
  std::string choice;
};

}  // namespace

struct Products::Library {
  Stream stream;
  cublasLtHandle_t handle = nullptr;
  bool by_time = false;
  std::map<ProductKey, std::unique_ptr<Plan>> plans{};  ///< of all products so far
};

Products::Products(Stream stream) : library_(new Library{stream}) {
  check(cublasLtCreate(&library_->handle), "starting the library");
}

Products::~Products() {
  (void)cublasLtDestroy(library_->handle);
}

void Products::choose_by_time(bool on) {
  library_->by_time = on;
}

std::vector<std::string> Products::choices() const {
  std::vector<std::string> lines;
  for (const auto& [key, plan] : library_->plans)
    if (plan && !plan->choice.empty())
      lines.push_back(fmt::format("{}: {}", text(key), plan->choice));
  return lines;
}

bool Products::multiply(const ProductKey& key, const Product& product, void* workspace) {
  const Stream stream = library_->stream;
  std::unique_ptr<Plan>& plan = library_->plans[key];
  if (!plan) {
    plan = std::make_unique<Plan>(library_->handle, key);
    if (library_->by_time && plan->offered.size() > 1)
      plan->choose(stream, workspace, product);
  }
  if (plan->offered.empty())
    return false;
  check(plan->enqueue(stream, workspace, product), "the matrix product " + text(key));
  return true;
}

std::pair<std::string, std::string> products_version() {
  const std::size_t version = cublasLtGetVersion();
  return {"cublasLt", fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)};
}
}  // namespace minitaw::kernels::detail::vendor
