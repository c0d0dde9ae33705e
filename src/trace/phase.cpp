#include "trace/phase.hpp"

#include <fmt/format.h>

#include <array>

namespace minitaw::trace {
namespace {

using schedule::Kind;
using schedule::Payload;

struct Look {
  std::string_view name, colour;
};
constexpr std::array<Look, phases> looks = {{
    {"F: forward", "#56b4e9"},
    {"BW: backward, both halves", "#e69f00"},
    {"B: backward towards the input", "#c98500"},
    {"W: backward towards the weights", "#f5d76b"},
    {"embedding, head, loss", "#009e73"},
    {"update, add, zero", "#8c8c8c"},
    {"weights", "#0072b2"},
    {"gradients", "#d55e00"},
    {"activations and their gradients", "#cc79a7"},
    {"embedding, norm, head", "#00573f"},
}};

Phase transfer_phase(Payload payload) {
  switch (payload) {
  case Payload::gradient:
    return Phase::gradients;
  case Payload::activation:
  case Payload::activation_grad:
    return Phase::activations;
  case Payload::ends:
  case Payload::ends_gradient:
    return Phase::ends_transfer;
  case Payload::none:
  case Payload::weights:
    break;
  }
  return Phase::weights;
}

std::string payload_text(const Event& e) {
  switch (e.payload) {
  case Payload::weights:
    return fmt::format("W{}", e.shard);
  case Payload::gradient:
    return fmt::format("G{}", e.shard);
  case Payload::activation:
    return fmt::format("A{} m{}", e.shard, e.micro_batch);
  case Payload::activation_grad:
    return fmt::format("D{} m{}", e.shard, e.micro_batch);
  case Payload::ends:
    return e.shard < 0 ? "E" : fmt::format("E{}", e.shard);
  case Payload::ends_gradient:
    return "EG";
  case Payload::none:
    break;
  }
  return (e.shard < 0 ? "" : fmt::format("s{}", e.shard)) +
         (e.micro_batch < 0 ? "" : fmt::format("{}m{}", e.shard < 0 ? "" : " ", e.micro_batch));
}

}  // namespace

Phase phase_of(const Event& event) {
  if (is_communication(event.kind)) return transfer_phase(event.payload);
  switch (event.kind) {
  case Kind::forward:
    return Phase::forward;
  case Kind::backward:
    return Phase::backward;
  case Kind::backward_input:
    return Phase::backward_input;
  case Kind::backward_weight:
    return Phase::backward_weight;
  case Kind::embed:
  case Kind::loss:
  case Kind::embed_backward:
    return Phase::ends;
  case Kind::join:
    return Phase::join;
  default:
    return Phase::update;
  }
}

std::string_view name_of(Phase phase) {
  return phase == Phase::join ? "join" : looks[static_cast<std::size_t>(phase)].name;
}
std::string_view colour_of(Phase phase) {
  return phase == Phase::join ? "#000000" : looks[static_cast<std::size_t>(phase)].colour;
}

std::string text_of(const Event& event) {
  std::string text(schedule::name_of(event.kind));
  if (const std::string payload = payload_text(event); !payload.empty()) text += " " + payload;
  if (event.kind == Kind::send) return fmt::format("{} to r{}", text, event.peer);
  if (event.kind == Kind::recv) return fmt::format("{} from r{}", text, event.peer);
  return event.peer < 0 ? text : fmt::format("{}, root r{}", text, event.peer);
}

}  // namespace minitaw::trace
