#include "record/progress.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "record/result.hpp"

namespace minitaw::record {

namespace {

double work_of(const deck::Case& c) {
  const model::Flops flops = model::flops_per_token(c.shape);
  return (flops.matmul + flops.attention_causal) * tokens_of(c) * (c.steps + c.warmup) / c.ranks;
}

}  // namespace

Progress::Progress(const std::vector<deck::Case>& cases) {
  for (const deck::Case& c : cases) work_.push_back(work_of(c));
  work_total_ = std::accumulate(work_.begin(), work_.end(), 0.0);
}

std::string Progress::after(double seconds) {
  seconds_ += seconds;
  work_done_ += work_.at(done_++);
  const double left = work_done_ > 0 ? seconds_ * (work_total_ - work_done_) / work_done_ : 0;
  return fmt::format("[{}/{}, {} to go]", done_, work_.size(), clock_text(std::max(left, 0.0)));
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace minitaw::record
