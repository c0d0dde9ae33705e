#include <fmt/format.h>

#include "base/error.hpp"
#include "predict/predict.hpp"
#include "schedule/simulate.hpp"

namespace minitaw::predict {
namespace {

using model::Recompute;
using schedule::Action;
using schedule::Kind;

/// Kernel by kernel, as docs/performance.md counts FLOPs and bytes.
class Device {
public:
  Device(const model::Shape& shape, const Speed& speed, const Machine& machine)
      : shape_(shape), speed_(speed), machine_(machine), tokens_(static_cast<double>(shape.tokens())),
        hidden_(static_cast<double>(shape.hidden)),
        width_(static_cast<double>(shape.heads * shape.head_dim())),
        rotated_(width_ + static_cast<double>(shape.kv_heads * shape.head_dim())),
        element_(static_cast<double>(model::bytes_of(shape.dtype))) {}

  [[nodiscard]] double seconds(Kind kind, const model::Shard& shard) const {
    double sum = 0;
    for (int layer = shard.first_layer; layer < shard.first_layer + shard.layers; ++layer)
      sum += block(kind, layer);
    return sum;
  }

  [[nodiscard]] double loss() const {
    const double flops = 2 * tokens_ * hidden_ * static_cast<double>(shape_.vocab);
    return 3 * flops / speed_.products.at(flops) +
           memory(tokens_ * (2 * static_cast<double>(shape_.vocab) + 6 * hidden_));
  }

private:
  [[nodiscard]] double product(double in, double out) const {
    const double flops = 2 * tokens_ * in * out;
    return flops / speed_.products.at(flops);
  }
  /// Seconds for so many elements.
  [[nodiscard]] double memory(double elements) const { return elements * element_ / machine_.memory_rate; }

  [[nodiscard]] double block(Kind kind, int layer) const {
    const auto ffn = static_cast<double>(shape_.ffn[static_cast<std::size_t>(layer)]);
    const double last = product(ffn, hidden_);
    const double matrices = product(hidden_, static_cast<double>(shape_.qkv())) + product(width_, hidden_) +
                            product(hidden_, 2 * ffn) + last;
    const double scores = 2 * tokens_ * static_cast<double>(shape_.seq) * width_;  // causal
    const double attention = scores / speed_.attention.at(scores);
    const double forward_rest = memory(tokens_ * (5 * hidden_ + 3 * ffn + 2 * rotated_));
    const double backward_rest = memory(tokens_ * (8 * hidden_ + 6 * ffn + 2 * rotated_));
    const double again = shape_.recompute == Recompute::none    ? 0
                         : shape_.recompute == Recompute::block ? matrices - last + attention + forward_rest
                                                                : matrices - last + forward_rest;
    const double input =
        matrices + 2 * scores / speed_.attention_backward.at(2 * scores) + backward_rest + again;
    switch (kind) {
    case Kind::forward:
      return matrices + attention + forward_rest;
    case Kind::backward_input:
      return input;
    case Kind::backward_weight:
      return matrices;
    default:
      return input + matrices;
    }
  }

  const model::Shape& shape_;
  const Speed& speed_;
  const Machine& machine_;
  double tokens_, hidden_, width_, rotated_, element_;
};

bool computes_shard(Kind kind) {
  return kind == Kind::forward || kind == Kind::backward || kind == Kind::backward_input ||
         kind == Kind::backward_weight;
}

}  // namespace

schedule::Costs device_costs(const deck::Case& c, const schedule::Program& program,
                             const model::Layout& layout, const Machine& machine) {
  const auto found = machine.speeds.find(c.shape.dtype);
  if (found == machine.speeds.end())
    throw InputError(fmt::format("{}: there is no table device.{}, the precision of the case", machine.path,
                                 model::name_of(c.shape.dtype)));
  const Speed& speed = found->second;
  // What computes little takes the bytes that it touches; the FLOPs of the rest are another matter.
  constexpr double endless = 1e300;
  const schedule::Costs bytes =
      schedule::costs_of(program, layout, {.flops = endless, .memory = machine.memory_rate});
  const double share = static_cast<double>(c.shape.micro_batch);
  return [=, &machine, own = c.micro_batch_per_rank, shape = c.shape](int rank, const Action& a) {
    const double part = own.empty() || a.micro_batch < 0
                            ? 1
                            : static_cast<double>(own[static_cast<std::size_t>(rank)]) / share;
    const Device device(shape, speed, machine);
    if (a.kind == Kind::join) return 0.0;
    if (const auto measured = speed.actions.find(a.kind); measured != speed.actions.end())
      return part * schedule::flops(a, layout) / measured->second;
    if (computes_shard(a.kind))
      return machine.overhead +
             part * device.seconds(a.kind, layout.shards[static_cast<std::size_t>(a.shard)]);
    if (a.kind == Kind::loss) return machine.overhead + part * device.loss();
    return machine.overhead + part * bytes(rank, a);
  };
}

}  // namespace minitaw::predict
