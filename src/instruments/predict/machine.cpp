// SPDX-License-Identifier: BSD-3-Clause
#include "instruments/predict/machine.hpp"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <fmt/ranges.h>
#include <fstream>
#include <functional>
#include <ranges>
#include <sstream>
#include <toml++/toml.hpp>
#include "base/error.hpp"
#include "base/range.hpp"

namespace minitaw::predict {
namespace {
const std::map<std::string_view, double> prefixes = {{"", 1},
    {"k", 1e3},
    {"M", 1e6},
    {"G", 1e9},
    {"T", 1e12},
    {"P", 1e15},
    {"m", 1e-3},
    {"u", 1e-6},
    {"n", 1e-9},
    {"Ki", 1 << 10},
    {"Mi", 1 << 20},
    {"Gi", 1 << 30}};

// What follows reads the value of a key. An InputError says what is wrong with it, as the end of a
// sentence that begins with the key.

/// Reads a quantity: its units with their factors, to which prefixes are put, and an example for
/// messages.
struct Dimension {
  std::vector<std::pair<std::string_view, double>> units;
  std::string_view example;

  double operator()(const toml::node& node) const {
    const std::string text = node.value_exact<std::string>().value_or("no text");
    const char* const end = text.data() + text.size();
    double value = 0;
    const auto [rest, code] = std::from_chars(text.data(), end, value);
    std::string_view unit(rest, end);
    unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
    for (const auto& [name, factor] : units)
      if (unit.ends_with(name) && value > 0 && std::isfinite(value))
        if (const auto prefix = prefixes.find(unit.substr(0, unit.size() - name.size()));
            prefix != prefixes.end())
          return value * prefix->second * factor;
    throw InputError(
        "is \"{}\"; it needs a number above zero with a unit, for example \"{}\"", text, example);
  }
};

const Dimension data_rate{{{"bit/s", 1.0 / 8}, {"B/s", 1}}, "10 Gbit/s"};
const Dimension compute_rate{{{"FLOP/s", 1}}, "400 TFLOP/s"};
const Dimension work{{{"FLOP", 1}}, "1 GFLOP"};
const Dimension time_span{{{"s", 1}}, "5 us"};
const Dimension amount{{{"B", 1}}, "80 GB"};

/// A rate for all sizes, or a list of sizes with their rates.
model::Curve curve_of(const toml::node& node) {
  const toml::array* const points = node.as_array();
  if (points == nullptr)
    return {{{1, compute_rate(node)}}};
  model::Curve curve;
  double last = 0;
  for (const toml::node& point : *points) {
    const toml::array* const pair = point.as_array();
    const double size = pair == nullptr || pair->size() != 2 ? 0 : work(*pair->get(0));
    if (size <= last)
      throw InputError("needs pairs in ascending order, for example "
                       R"([["1 GFLOP", "50 TFLOP/s"], ["1 TFLOP", "600 TFLOP/s"]])");
    curve.points.emplace_back(size, compute_rate(*pair->get(1)));
    last = size;
  }
  return curve;
}

std::string text_of(const toml::node& node) {
  if (const auto value = node.value_exact<std::string>())
    return *value;
  throw InputError("must be a text");
}

int count_of(const toml::node& node) {
  const auto value = node.value_exact<std::int64_t>();
  if (!value || *value < 1 || *value > 1'000'000)
    throw InputError("must be a whole number from 1 to 1000000");
  return *value;
}

double share_of(const toml::node& node) {
  const auto value = node.value<double>();
  if (!value || !(*value > 0 && *value <= 1))
    throw InputError("must be a number above 0, and at most 1");
  return *value;
}

template <class Choice>
Choice choice_of(const toml::node& node, const std::map<std::string, Choice>& choices) {
  const std::string value = text_of(node);
  if (const auto chosen = choices.find(value); chosen != choices.end())
    return chosen->second;
  const std::vector<std::string> names = list_of(choices | std::views::keys);
  throw InputError(
      "is \"{}\", and not one of {}{}", value, fmt::join(names, ", "), did_you_mean(value, names));
}

Inside inside_of(const toml::node& node) {
  return choice_of<Inside>(
      node, {{"switch", Inside::network}, {"pairs", Inside::pairs}, {"memory", Inside::memory}});
}

bool is_eager(const toml::node& node) {
  return choice_of<bool>(node, {{"rendezvous", false}, {"eager", true}});
}

using Read = std::function<void(const toml::node& node, Machine& machine)>;

Read read(auto part, auto value_of) {
  return [=](const toml::node& node, Machine& machine) { machine.*part = value_of(node); };
}

Read read(model::Dtype dtype, auto part, auto value_of) {
  return [=](const toml::node& node, Machine& machine) {
    machine.speeds[dtype].*part = value_of(node);
  };
}

/// The keys of docs/predict.md.
std::map<std::string, Read> all_keys() {
  std::map<std::string, Read> keys = {{"name", read(&Machine::name, text_of)},
      {"nodes", read(&Machine::nodes, count_of)},
      {"ranks_per_node", read(&Machine::ranks_per_node, count_of)},
      {"device.memory_rate", read(&Machine::memory_rate, data_rate)},
      {"device.memory", read(&Machine::memory, amount)},
      {"device.overhead", read(&Machine::overhead, time_span)},
      {"device.processors", read(&Machine::processors, count_of)},
      {"device.pools", read(&Machine::pools, count_of)},
      {"device.moving", read(&Machine::moving, data_rate)},
      {"inside.kind", read(&Machine::inside, inside_of)},
      {"inside.rate", read(&Machine::inside_rate, data_rate)},
      {"inside.latency", read(&Machine::inside_latency, time_span)},
      {"between.adapters", read(&Machine::adapters, count_of)},
      {"between.rate", read(&Machine::rate, data_rate)},
      {"between.taper", read(&Machine::taper, share_of)},
      {"between.latency", read(&Machine::latency, time_span)},
      {"between.messages", read(&Machine::messages, count_of)},
      {"between.protocol", read(&Machine::eager, is_eager)}};
  for (const model::Dtype dtype : {model::Dtype::fp32, model::Dtype::bf16}) {
    const std::string table = fmt::format("device.{}.", model::name_of(dtype));
    keys[table + "products"] = read(dtype, &Speed::products, curve_of);
    keys[table + "attention"] = read(dtype, &Speed::attention, curve_of);
    keys[table + "attention_backward"] = read(dtype, &Speed::attention_backward, curve_of);
    keys[table + "peak"] = read(dtype, &Speed::peak, compute_rate);
  }
  return keys;
}

/// What a table says, by whole names of keys.
using Values = std::map<std::string, const toml::node*>;

void add(const toml::table& table, const std::string& prefix, Values& values) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const toml::table* const inner = node.as_table())
      add(*inner, name + ".", values);
    else
      values[name] = &node;
  }
}

/// "between.rate=25 Gbit/s": what is no TOML is a text.
toml::table parse_change(const std::string& change) {
  constexpr std::string_view option = "--machine-set";
  const std::size_t equals = change.find('=');
  if (equals == std::string::npos)
    throw InputError("{} {}: write key=value, for example between.rate=25 Gbit/s", option, change);
  try {
    return toml::parse(change, option);
  } catch (const toml::parse_error&) {
    const std::string key = change.substr(0, equals), text = change.substr(equals + 1);
    return toml::parse(fmt::format("{}='{}'", key, text), option);
  }
}

/// "cluster.toml:12"
std::string place_of(const toml::source_region& source) {
  return fmt::format("{}:{}", *source.path, source.begin.line);
}

/// Refuses a machine that lacks a key, or has more adapters than ranks.
void check(const Machine& machine) {
  const auto need = [&](bool is_there, const std::string& key, const char* example) {
    if (!is_there)
      throw InputError("{}: {} is missing; write for example {}", machine.path, key, example);
  };
  need(machine.nodes > 0, "nodes", "2");
  need(machine.ranks_per_node > 0, "ranks_per_node", "8");
  need(machine.memory_rate > 0, "device.memory_rate", "\"3 TB/s\"");
  need(!machine.speeds.empty(), "device.bf16.products", "\"400 TFLOP/s\"");
  for (const auto& [dtype, speed] : machine.speeds)
    need(!speed.products.points.empty(),
        fmt::format("device.{}.products", model::name_of(dtype)),
        "\"400 TFLOP/s\"");
  need(machine.inside_rate > 0 || machine.ranks_per_node == 1, "inside.rate", "\"400 GB/s\"");
  need(machine.rate > 0 || machine.nodes == 1, "between.rate", "\"10 Gbit/s\"");
  if (machine.adapters > machine.ranks_per_node)
    throw InputError("{}: between.adapters are {}, more than the {} of a node; a rank "
                     "uses one adapter",
        machine.path,
        machine.adapters,
        counted(machine.ranks_per_node, "rank"));
}
}  // namespace

Machine parse_machine(
    const std::string& text, const std::string& path, const std::vector<std::string>& changes) {
  std::deque<toml::table> tables;
  Values values;
  try {
    add(tables.emplace_back(toml::parse(text, path)), "", values);
    for (const std::string& change : changes)
      add(tables.emplace_back(parse_change(change)), "", values);
  } catch (const toml::parse_error& error) {
    throw InputError("{}: not TOML: {}", place_of(error.source()), error.description());
  }

  const std::map<std::string, Read> keys = all_keys();
  Machine machine{.path = path, .name = path};
  for (const auto& [name, node] : values)
    try {
      const auto key = keys.find(name);
      if (key == keys.end())
        throw InputError(
            "is no key of a machine" + did_you_mean(name, list_of(keys | std::views::keys)));
      key->second(*node, machine);
    } catch (const InputError& error) {
      throw InputError("{}: {} {}", place_of(node->source()), name, error.what());
    }
  check(machine);
  for (auto& [dtype, speed] : machine.speeds) {
    if (speed.attention.points.empty())
      speed.attention = speed.products;
    if (speed.attention_backward.points.empty())
      speed.attention_backward = speed.attention;
  }
  if (machine.pools == 0 || machine.pools > machine.nodes)
    machine.pools = machine.nodes;
  return machine;
}

Machine read_machine(const std::string& path, const std::vector<std::string>& changes) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw InputError("machine file {} cannot be read, or is empty", path);
  return parse_machine(text.str(), path, changes);
}
}  // namespace minitaw::predict
