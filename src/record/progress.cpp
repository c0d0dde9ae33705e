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

Progress::Progress(const std::vector<deck::Case>& runs, double least_rate) : least_rate_(least_rate) {
  for (const deck::Case& c : runs) work_.push_back(work_of(c));
  work_left_ = std::accumulate(work_.begin(), work_.end(), 0.0);
}

std::string Progress::after(double seconds) {
  seconds_ += seconds;
  work_done_ += work_.at(done_);
  leave_out();
  const double left = work_done_ > 0 ? seconds_ * work_left_ / work_done_ : 0;
  return fmt::format("[{}/{}, {} to go]", done_, work_.size(), clock_text(std::max(left, 0.0)));
}

void Progress::leave_out() { work_left_ -= work_.at(done_++); }

double Progress::expected(const deck::Case& c) const {
  return work_of(c) * (measured() ? seconds_ / work_done_ : 1 / least_rate_);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace minitaw::record
