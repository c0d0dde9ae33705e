// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <tuple>
#include <vector>

namespace minitaw::test {
/// Cases of a test, each with its expectation.
template <class... Columns>
using Rows = std::vector<std::tuple<Columns...>>;
}  // namespace minitaw::test
