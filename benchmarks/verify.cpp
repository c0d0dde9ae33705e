#include "verify.hpp"

#include <fmt/format.h>

#include <regex>

#include "base/error.hpp"

namespace minitaw::bench {

namespace {

double error_of(const Kernel& kernel) {
  const Problem problem = kernel.make();
  problem.reset();
  problem.run();
  return problem.error();
}

std::regex expression_of(const std::string& filter) {
  try {
    return std::regex(filter, std::regex::extended);
  } catch (const std::regex_error&) {
    throw InputError(fmt::format("--benchmark_filter={}: this is not a regular expression", filter));
  }
}

}  // namespace

int verify(const Kernels& kernels, std::FILE* out) {
  Kernels wrong;
  for (const Kernel& kernel : kernels) {
    const double error = error_of(kernel);
    const bool right = error <= kernel.tolerance;
    fmt::print(out, "{:<6} {:<38} {:<38} error {:.1e}, at most {:.0e}\n", right ? "ok" : "WRONG", kernel.name,
               kernel.shape, error, kernel.tolerance);
    if (!right) wrong.push_back(kernel);
  }
  fmt::print(out, "{} of {} kernels are right\n", kernels.size() - wrong.size(), kernels.size());
  for (const Kernel& kernel : wrong) fmt::print(out, "WRONG: {} at {}\n", kernel.name, kernel.shape);
  return static_cast<int>(wrong.size());
}

Kernels selected(const Kernels& kernels, const std::string& filter) {
  const bool without = filter.starts_with('-');
  const std::regex expression = expression_of(filter == "all" ? "." : filter.substr(without ? 1 : 0));
  Kernels found;
  for (const Kernel& kernel : kernels)
    if (std::regex_search(kernel.label, expression) != without) found.push_back(kernel);
  if (found.empty())
    throw InputError(fmt::format("--benchmark_filter={}: no kernel has such a name", filter));
  return found;
}

}  // namespace minitaw::bench
