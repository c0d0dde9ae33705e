#include "trace/phase.hpp"

#include <fmt/format.h>

#include <array>

#include "schedule/account.hpp"
#include "schedule/program.hpp"

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
  switch (schedule::traffic_of(payload)) {
  case schedule::Traffic::gradients:
    return Phase::gradients;
  case schedule::Traffic::activations:
    return Phase::activations;
  case schedule::Traffic::ends:
    return Phase::ends_transfer;
  case schedule::Traffic::weights:
    break;
  }
  return Phase::weights;
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
  if (const std::string what = schedule::payload_text(event.payload, event.shard); !what.empty())
    text += " " + what;
  if (event.micro_batch >= 0) text += fmt::format(" m{}", event.micro_batch);
  if (event.kind == Kind::send) return fmt::format("{} to r{}", text, event.peer);
  if (event.kind == Kind::recv) return fmt::format("{} from r{}", text, event.peer);
  return event.peer < 0 ? text : fmt::format("{}, root r{}", text, event.peer);
}

}  // namespace minitaw::trace
