// SPDX-License-Identifier: BSD-3-Clause
// The same step again, from the same state: every bit must be the same, or data are corrupted
// silently.
#include <algorithm>
#include <fmt/ranges.h>
#include <sstream>
#include "base/error.hpp"
#include "harness/case_runner.hpp"

namespace minitaw::harness {
namespace {
/// A number that depends on every bit, for the loss, each gradient and each weight tensor of a
/// rank, in the same order in every repetition.
using Sums = std::vector<std::pair<std::string, std::size_t>>;

std::size_t sum_of(model::Buffer buffer) {
  const auto host =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), engine::view_of(buffer));
  const std::string_view bytes(reinterpret_cast<const char*>(host.data()), host.size());
  return std::hash<std::string_view>()(bytes);
}

/// Adds what a slot has of each tensor: `wanted` elements of the flat buffer of which it holds
/// `there`.
void add_tensors(Sums& sums,
    const engine::Runtime& runtime,
    schedule::Slot slot,
    const model::Flat& flat,
    Range there,
    Range wanted) {
  const std::size_t width = bytes_of(dtype_of(slot.cls, runtime.layout().shape));
  const model::Buffer buffer = runtime.arena().slot(slot);
  const bool weights = schedule::memory_of(slot.cls) == schedule::Memory::weights;
  for (const model::Tensor& t : flat.tensors) {
    const std::int64_t begin = std::max(t.offset, wanted.begin);
    const std::int64_t end = std::min(t.offset + t.size(), wanted.begin + wanted.count);
    if (begin < end)
      sums.emplace_back(fmt::format("the {} of {}", weights ? "weights" : "gradient", t.name),
          sum_of({buffer.data + (begin - there.begin) * width, (end - begin) * width}));
  }
}

/// The sums of all that the rank has updated in a step.
Sums sums_of(const engine::Runtime& runtime) {
  const schedule::Program& program = runtime.program();
  const model::Layout& layout = runtime.layout();
  Sums sums = {{"the loss", std::hash<double>()(runtime.loss())}};
  for (const schedule::Action& a : runtime.own_program().actions) {
    if (a.kind != schedule::Kind::update)
      continue;
    const bool ends = of_embeddings(a.payload);
    const model::Flat* const flat = ends ? layout.parts().back() : &layout.shards[a.shard];
    for (const auto operand : {schedule::Operand::gradient, schedule::Operand::weights}) {
      const Range there = held(program, runtime.own(), a[operand].cls, ends ? -1 : a.shard, layout);
      // Updated weights of the embeddings go to every rank that has them.
      const bool in_part = ends && operand == schedule::Operand::gradient;
      const Range wanted =
          in_part ? range_of(flat->elements, {a.shard, program.embeddings_parts}) : there;
      add_tensors(sums, runtime, a[operand], *flat, there, wanted);
    }
  }
  return sums;
}

/// Whatever sums in an order that depends on time is refused, or replaced where it was not asked
/// for.
Case repeatable(Case c) {
  const bool attention = c.attention == "cudnn";
  if (attention || c.transport == "nccl")
    throw InputError("{}: its sums have no fixed order; to repeat a step to the bit, "
                     "use attention = portable or host and transport = mpi",
        attention ? "attention = cudnn" : "transport = nccl");
  c.transport = "mpi";
  if (c.attention == "auto" && !kernels::on_host)
    c.attention = "portable";
  return c;
}
}  // namespace

std::vector<std::string> CaseRunner::repeat(const Case& asked, int times) {
  Case c;
  agreed([&] { c = repeatable(asked); });
  engine::StepOptions options = options_.step;
  options.repeatable = true;
  options.fill = std::byte{0};
  const Plan plan = agreed_plan(c);
  Sums first;
  std::string differing;  // lines of this rank
  for (int repetition = 1; repetition <= times; ++repetition) {
    if (const auto begun = begin(plan, options)) {
      engine::Runtime& runtime = *begun->runtime;
      runtime.prepare();
      (void)runtime.step();
      const Sums sums = sums_of(runtime);
      if (repetition == 1)
        first = sums;
      for (std::size_t i = 0; i < sums.size(); ++i)
        if (sums[i] != first[i])
          differing +=
              fmt::format("rank {}, repetition {}: {}\n", rank_, repetition, sums[i].first);
    }
    wait_for_all(world_);
  }
  const auto texts = comm::mpi::gather_lists(differing, world_, "gathering deviations");
  std::istringstream lines(fmt::format("{}", fmt::join(texts, "")));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);)
    all.push_back(line);
  return all;
}
}  // namespace minitaw::harness
