// SPDX-License-Identifier: BSD-3-Clause
// Valid programs with one thing wrong, and the rule that refuses each.
#include <gmock/gmock.h>
#include <regex>
#include "base/error.hpp"
#include "schedule/parse.hpp"
#include "schedule/shapes.hpp"
#include "schedule/validate.hpp"

namespace minitaw::schedule {
namespace {
/// Program | what is replaced in it => by what, everywhere (>> the first only) | part of the
/// message, below the rule. ~ is the end of a line; a line that begins with a blank continues the
/// one before.
const std::string replacements = R"(
fresh reads
group | F s1 m0 w0 a1 => F s1 m0 h0 a1 | h0 belongs to shard 0
relay | F s0 m1 w0 => F s1 m1 w0 | w0 holds the weights of shard 0
relay | loss m1 x0 => loss m0 x0 | x0 holds micro-batch 1 before shard 2
relay | BW s1 m0 w0 a1 x0 g0 => BW s1 m0 w0 a1 x0 +g0 | g0 holds nothing
relay | owned 1 => kept 0/2 owned 1 | keeps part 0 of 2 of a shard
relay | recv G1 c0 => recv G1 w0 | needs a slot of class
relay | dembed m1 x0 f0 => dembed m1 x0 f0 a0 | no use for saved activations a0
relay | send W1 h0 => send W1 | where it has none
relay | F s1 m1 h0 => F s2 m1 h0 | names shard 2
relay | embed m1 => embed m2 | names micro-batch 2
pipeline | shards 2~ => shards 2~shard_parts 2~ | A1 => A1[0/2] | names part 0 of 2
pipeline | A1 => A1[1/1] | names part 1 of 1
pipeline | A1 => A0 | expected micro-batch 0 before shard 0
pipeline | D1 => D2 | expected the gradient of micro-batch 0 after shard 1
pipeline | update E0 e0 f0 => B s0 m0 h0 a0 x0 b0 | h0 holds the updated weights of shard 0
relay | update E0 e0 f0 => embed m0 x0 e0 | part 0 is not updated yet
relay | all_gather E e0 => all_reduce E e0 | only gradients can be added up
relay | shards 2~ => shards 2~shard_parts 2~ | rank 0 slots => rank 0 slots k1
  | owned 0 => kept 0/2 owned 0 | recv W1 w0 => recv W1 k0 | k0 has no room for parts 0 to 1
shared | #0 h0 a0 x0 v0 after context_inputs:2 => #0 h0 a0 x0 v0 after context_inputs:1
  | reads keys and values v0
shared | KV0[1/2] m0 #0 v0 @context0.tails => KV0[0/2] m0 #0 v0 @context0
  | v0 lacks a part that is read
shared | F.keys s0 m0 #1 => F.keys s0 m0 #0 | x0 holds
shared | KV0[0/2] m0 #1 => KV0[0/2] m0 #0 | v0 holds
relay | F s0 m0 h0 => F s0 m0 #0 h0 | names block 0
shared | F.keys s0 m0 #1 => F.keys s0 m0 #2 | names block 2
shared | blocks 2 => blocks 3 | comes between the segments
shared | blocks 2 => blocks 2 2 | the blocks of 2 shards
shared | groups 2 => groups 1+1 | context groups of 2 ranks
shared | F.attend s0 m0 #0 h0 a0 x0 v0 => F s0 m0 h0 a0 x0 | visits are in segments here
shared | BW.weights s0 m0 #1 => BW.weights s0 m0 #0 | does not follow the segment
stages | -> r2 => -> r5 | -> r3 => -> r2 | -> r5 => -> r3 | <- r0 => <- r5 | <- r1 => <- r0
  | <- r5 => <- r1 | x0 holds
slices | x1 +y0 => x1 y0 | begins
slices | a0 x0 y0 => a0 x0 | needs keys and values
slices | slices 2 => slices 1 | no use for keys and values
shared_slices | F.extend s0[1/2] m0.0 => F.extend s0[0/2] m0.0 | y0 holds
no overwrite
pipeline | <- r1 after inputs_send:1 => <- r1 after compute:2 | x0, which may still be read
matched messages
relay | recv G1 c0 <- r0 => recv G1 t0 <- r0 after compute:5 | same transfer
pipeline | update W0 h0 => update s0 h0 | moves nothing
relay | send W1 h0 -> r0 => send W1 h0 -> r1 | its peer is its own rank
relay | send W1 h0 -> r0 => send W1 h0 -> r2 | never joins it
same collectives
shared_slices | KV0[0/4] m0.0 >> KV0[0/4] m0.1 | same transfer
group | broadcast W1 w0 root r1 => broadcast W1 w0 root r0 | same transfer
relay | reduce_scatter EG >> all_reduce EG | same transfer
relay | all_gather E e0 >> all_gather W0 h0 | same transfer
group | reduce G1 g0 root r1 => reduce_scatter G1 g0 | 1 parts cannot be shared by 2 ranks
relay | world 0 1 => world 0 1 2 | world must name ranks
relay | EG f0 @world => EG f0 @none | the rank is not a member
relay | world 0 1 => world 1 | the rank is not a member
group | root r1 => root r2 | the root is not a member
replicas | replicas 2~ => | replicas must name ranks
replicas | all_reduce G0 t0 => all_reduce W0 h0 | only gradients are summed over replicas
exact gradients
relay | add G0 c0 +t0 after compute:6 => zero G0 g0 after gradients_send:1
  | micro-batch 1 of shard 0 is missing
relay | send G1 => send G0 | recv G1 => recv G0 | expected a gradient of
relay | x0 t0 => x0 +t0 | t0 still holds the gradient
group | reduce G1 g0 root r1 => reduce G1 g0 root r0 | micro-batch 0 of shard 1 is missing
pipeline | W s0 m0 a0 b0 t0 => W s0 m0 a0 b0 t0~ 4 compute W s0 m0 a0 b0 +t0
  | counts micro-batch 0 of shard 0 twice
relay | dembed m1 x0 f0 => dembed m1 x0 +f0 | adds to the gradient of the last step
slices | loss m0.1 x1 e0 +f0 => loss m0.1 x1 e0 f0 | overwrites what this step
relay | dembed m0 x0 f0 => embed m0 x0 e0 | f0 still holds a gradient
slices | dembed m1.1 x0 +f0 => embed m1.1 x0 e0 | of the embedding is missing
relay | shards 2~ => shards 2~clips 1~ | needs the squares of all gradients
clipped | EG0 f0 +n0 => EG0 f0 n0 | lacks the squares of a gradient
tied | 4 gradients_group all_reduce EG f0 @ends0 after compute:4~ =>
  | 4 gradients_group all_reduce EG f0 @ends0 after compute:2~ => | after gradients_group:1 =>
  | in embeddings' accumulator f0, micro-batch 0 of the embedding is missing
tied | @ends0 after compute:4 => @ends0 after compute:4~ 4 gradients_group all_reduce EG f0 @ends0
  | @ends0 after compute:2 => @ends0 after compute:2~ 4 gradients_group all_reduce EG f0 @ends0
  | after gradients_group:1 => after gradients_group:2
  | counts micro-batch 0 of the embedding twice
tied | dembed m0 x0 f0 => dembed m0 x0 +f0 | adds to the gradient of the last step
tied_end | dembed m0 x0 +f0 => dembed m0 x0 f0 | overwrites what this step
tied_clipped | square G1 t0 n0~ => square G1 t0 n0~
  4 compute square EG0 f0 +n0 after gradients_group:1~
  | @world after compute:4 => @world after compute:5 | counts the squares of a gradient twice
pipeline | embeddings_split 1~ => embeddings_split 1~tied 1~ | slices do not fit
pipeline | W s0 m0 a0 b0 t0 => W s1 m0 a0 b0 t0 | t0 belongs to shard 0
pipeline | 5 compute update W1 h0 t0~ => | h0 is not updated as a whole
pipeline | 5 compute update E1 e0 f0~ => | e0 is not updated as a whole
relay | micro_batches 2 => micro_batches 0 | slices do not fit
pipeline | embeddings_parts 2 => embeddings_parts 3 | slices do not fit
relay | e1 f1 owned => owned | no rank holds the embeddings
relay | shards 2~ => shards 2~replicas 2~ | of the other replicas is missing
replicas | EG f0 @replicas after compute:5 => G0 t0 @replicas | after gradients_recv:1
  => after gradients_recv:2 | of the other replicas twice
shared | reduce_scatter DKV0[1/2] m0 #1 d0 => reduce DKV0[1/2] m0 #1 d0 root r1
  | rank 1 of the context group is missing
slices | y0 +z0 => y0 z0 | begins
shared_slices | BW.share s0 m0.0 => BW.share s0 m0.1 | z0 holds
all waited
relay | join after inputs_recv:2 => join after | join does not wait for it
pipeline | 5 compute join~ => | last action must be join
pipeline | 5 compute join~ => 5 compute join~ 5 compute join~ | comes after join
pipeline | inputs_send send => compute send | not belong in lane compute
pipeline | compute dembed => inputs_recv dembed | not belong in lane inputs_recv
no deadlock
relay | -1 inputs_send send W0 h0 -> r1~ => | <- r1~
  >> <- r1~ -1 inputs_send send W0 h0 -> r1 after inputs_recv:1~ | -> r0~
  >> -> r0 after inputs_recv:1~ | waits for the other side
relay | x0 after inputs_recv:1 => x0 after inputs_recv:2 | of which 1 are issued
slots accounted
relay | a2 >> a1 | declares 1 slot of this class
relay | w0 <- r0 after compute:2 => w1 <- r0 after compute:2 | BW s0 m1 w0 => BW s0 m1 w1
  | rank 1 slots h1 t1 w1 => rank 1 slots h1 t1 w2 | at most 1 of their contents
relay | groups 1+1 => groups 1+1+1 | 2 ranks have actions
relay | t1 >> t2 | 1 owned and 2 accumulator slots
relay | f1 >> f2 | 1 and 2 of embeddings
)";

/// The program's text with single blanks.
std::string text_of(const Request& request) {
  return std::regex_replace(to_text(build(request)), std::regex(" +"), " ");
}

std::string sharing(const char* spec, int ranks, int layers, int key_parts = 1) {
  Request request{parse_spec(spec), Groups({ranks}), 1, layers};
  request.context = 2;
  request.key_parts = key_parts;
  request.costs = {.block = 3, .head = 4};
  return text_of(request);
}

std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find(by, begin)) != std::string::npos;
      begin = end + by.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::string tied(int ranks, bool clips = false) {
  return text_of({.spec = parse_spec("1f1b"),
      .groups = Groups({ranks}),
      .layers = ranks,
      .clips = clips,
      .tied = true});
}

/// `text` after a change of the table, whose first part must occur in it.
std::string changed(std::string text, std::string change) {
  std::ranges::replace(change, '~', '\n');
  const std::size_t by = std::min(change.find(" =>"), change.find(" >>"));
  const std::string from = change.substr(0, by),
                    to = change.substr(std::min(by + 4, change.size()));
  std::size_t at = text.find(from);
  if (at == std::string::npos)
    throw std::logic_error("does not occur: " + from);
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
    if (change[by + 1] == '>')
      break;
  }
  return text;
}

TEST(Validate, RefusesADefectByItsRule) {
  const auto plain = [](const char* spec, int micro_batches, int replicas = 1, bool clips = false) {
    return text_of(
        {parse_spec(spec), Groups::equal(2, replicas), micro_batches, 2, replicas, clips});
  };
  const std::map<std::string, std::string> programs = {{"relay", text_of(shapes::relay())},
      {"pipeline", text_of(shapes::pipeline())},
      {"group", plain("tawpipe", 2)},
      {"replicas", plain("1f1b", 2, 2)},
      {"clipped", plain("zb1", 1, 1, true)},
      {"tied", tied(2)},
      {"tied_end", tied(1)},
      {"tied_clipped", tied(2, true)},
      {"slices", text_of({parse_spec("zb1:slices=2"), Groups({1}), 2, 1})},
      {"shared", sharing("1f1b", 2, 2)},
      {"stages", sharing("1f1b", 4, 2)},
      {"shared_slices", sharing("1f1b:slices=2", 2, 1, 2)}};
  std::string rule;
  for (const std::string& row :
      split(std::regex_replace(replacements, std::regex("\n +"), " "), "\n")) {
    const std::vector<std::string> fields = split(row, " | ");
    if (fields.size() < 3) {
      rule = row;
      continue;
    }
    SCOPED_TRACE(row);
    std::string text = programs.at(fields[0]);
    for (std::size_t i = 1; i + 1 < fields.size(); ++i)
      text = changed(text, fields[i]);
    const Violation found = validate(parse_program(text)).value_or(Violation{});
    EXPECT_EQ(name_of(found.rule), rule) << found.message;
    EXPECT_THAT(found.message, testing::HasSubstr(fields.back()));
  }
}

TEST(Validate, RequireValidNamesTheRuleAndTheAction) {
  const std::string broken =
      changed(text_of(shapes::relay()), "a1 x0 after inputs_recv:1 => a1 x0");
  EXPECT_THAT([&] { require_valid(parse_program(broken)); },
      testing::ThrowsMessage<LogicError>(testing::AllOf(testing::HasSubstr("fresh reads"),
          testing::HasSubstr("'F s1 m0 w0 a1 x0': reads weights w0, which may"))));
}
}  // namespace
}  // namespace minitaw::schedule
