// SPDX-License-Identifier: BSD-3-Clause
#include "predict/machine.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <toml++/toml.hpp>

#include "base/error.hpp"

namespace minitaw::predict {
namespace {
/// A dimension: units with their factors, to which SI prefixes are put, and an example for messages.
struct Dimension {
  std::vector<std::pair<std::string_view, double>> units;
  std::string_view example;
};
const Dimension data_rate{{{"bit/s", 1.0 / 8}, {"B/s", 1}}, "10 Gbit/s"};
const Dimension compute_rate{{{"FLOP/s", 1}}, "400 TFLOP/s"};
const Dimension work{{{"FLOP", 1}}, "1 GFLOP"};
const Dimension time_span{{{"s", 1}}, "5 us"};
const Dimension amount{{{"B", 1}}, "80 GB"};

std::optional<double> prefix(std::string_view text) {
  static const std::map<std::string_view, double> known = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
      {"P", 1e15}, {"m", 1e-3}, {"u", 1e-6}, {"n", 1e-9}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}};
  const auto found = known.find(text);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

double quantity(std::string_view text, const Dimension& dimension, bool zero) {
  const auto wrong = [&](const char* what) {
    return InputError(fmt::format("{}; write for example \"{}\"", what, dimension.example));
  };
  double value = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || !std::isfinite(value)) throw wrong("does not begin with a number");
  std::string_view unit(rest, text.data() + text.size() - rest);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  if (value < 0 || (value == 0 && !zero)) throw InputError(zero ? "is below zero" : "is not above zero");
  for (const auto& [name, factor] : dimension.units)
    if (unit.ends_with(name))
      if (const auto scale = prefix(unit.substr(0, unit.size() - name.size()))) return value * *scale * factor;
  throw wrong(unit.empty() ? "has no unit" : "has a unit that does not fit");
}

/// A table of the file; it remembers which keys were asked for, so that the others are found out.
class Table {
public:
  Table(const toml::table& table, std::string prefix, const std::string& path)
      : table_(table), prefix_(std::move(prefix)), path_(path) {}

  [[nodiscard]] bool has(const std::string& key) {
    known_.insert(key);
    return table_.contains(key);
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    const toml::node* node = table_.get(key);
    const auto line = (node != nullptr ? *node : static_cast<const toml::node&>(table_)).source().begin.line;
    throw InputError(fmt::format("{}:{}: {}{} {}", path_, std::max<std::size_t>(line, 1), prefix_, key, what));
  }

  std::string text(const std::string& key, const std::string& otherwise) {
    if (!has(key)) return otherwise;
    if (const auto value = table_.get(key)->value<std::string>()) return *value;
    refuse(key, "must be a text");
  }

  template <class Choice>
  Choice choice(const std::string& key, const std::vector<std::pair<std::string, Choice>>& choices) {
    const std::string value = text(key, choices.front().first);
    std::vector<std::string> names;
    for (const auto& [name, meant] : choices) {
      if (name == value) return meant;
      names.push_back(name);
    }
    refuse(key, fmt::format("is \"{}\"; did you mean \"{}\"?", value, nearest(value, names)));
  }

  int count(const std::string& key, std::optional<int> otherwise = std::nullopt) {
    if (!has(key)) {
      if (otherwise) return *otherwise;
      refuse(key, "is missing: a whole number");
    }
    const auto value = table_.get(key)->as_integer();
    if (value == nullptr || value->get() < 1 || value->get() > 1'000'000)
      refuse(key, "must be a whole number from 1 to 1000000");
    return static_cast<int>(value->get());
  }

  /// `otherwise` where the key is not there; without it, the key must be.
  double number(const std::string& key, const Dimension& dimension, std::optional<double> otherwise = std::nullopt) {
    if (!has(key)) {
      if (otherwise) return *otherwise;
      refuse(key, fmt::format("is missing; write for example \"{}\"", dimension.example));
    }
    return read(key, *table_.get(key), dimension, otherwise == 0.0);
  }

  double factor(const std::string& key, double otherwise) {
    if (!has(key)) return otherwise;
    const std::optional<double> value = table_.get(key)->value<double>();
    if (!value || !(*value > 0) || !std::isfinite(*value)) refuse(key, "must be a number above zero");
    return *value;
  }

  /// "0-3,8", or one number; each below `count`.
  std::set<int> numbers(const std::string& key, int count) {
    static const std::regex range(" *([0-9]{1,7})(?:-([0-9]{1,7}))? *");
    std::string text;
    if (has(key))
      table_.get(key)->visit([&](const auto& node) {
        if constexpr (toml::is_string<decltype(node)>) text = *node;
        if constexpr (toml::is_integer<decltype(node)>) text = std::to_string(*node);
      });
    std::istringstream parts(text.empty() ? "none" : text);
    std::set<int> found;
    std::smatch ends;
    for (std::string part; std::getline(parts, part, ',');) {
      if (!std::regex_match(part, ends, range)) refuse(key, R"(must be numbers like "0-3,8")");
      const int first = std::stoi(ends[1]), last = ends[2].matched ? std::stoi(ends[2]) : first;
      if (last < first) refuse(key, fmt::format("has {} before {}", first, last));
      if (last >= count) refuse(key, fmt::format("has {}, but they are 0 to {}", last, count - 1));
      for (int number = first; number <= last; ++number) found.insert(number);
    }
    return found;
  }

  Curve curve(const std::string& key, const Curve& otherwise) {
    if (!has(key)) return otherwise;
    const toml::array* points = table_.get(key)->as_array();
    if (points == nullptr) return {{{1, number(key, compute_rate)}}};
    Curve curve;
    for (const toml::node& point : *points) {
      const toml::array* pair = point.as_array();
      if (pair == nullptr || pair->size() != 2)
        refuse(key, R"(must be a rate, or a list like [["1 GFLOP", "50 TFLOP/s"], ["1 TFLOP", "600 TFLOP/s"]])");
      curve.points.emplace_back(read(key, *pair->get(0), work, false), read(key, *pair->get(1), compute_rate, false));
      if (curve.points.size() > 1 && curve.points.back().first <= std::prev(curve.points.end(), 2)->first)
        refuse(key, "must have sizes in ascending order");
    }
    if (curve.points.empty()) refuse(key, "is an empty list");
    return curve;
  }

  Table table(const std::string& key) {
    static const toml::table empty;
    if (!has(key)) return {empty, prefix_ + key + ".", path_};
    if (const toml::table* inner = table_.get(key)->as_table()) return {*inner, prefix_ + key + ".", path_};
    refuse(key, "must be a table");
  }

  /// The tables of a list; none if there is no such key.
  std::vector<Table> tables(const std::string& key) {
    std::vector<Table> all;
    if (!has(key)) return all;
    const toml::array* const list = table_.get(key)->as_array();
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i)
      if (const toml::table* const inner = list->get(i)->as_table())
        all.emplace_back(*inner, fmt::format("{}{}[{}].", prefix_, key, i), path_);
    if (list == nullptr || all.size() != list->size()) refuse(key, "must be a list of tables");
    return all;
  }

  /// Refuses keys that were not read.
  void finish() const {
    for (const auto& [key, node] : table_)
      if (const std::string name(key.str()); !known_.contains(name))
        refuse(name, fmt::format("is no key of a machine; did you mean \"{}\"?",
                         nearest(name.substr(0, 64), {known_.begin(), known_.end()})));
  }

private:
  double read(const std::string& key, const toml::node& node, const Dimension& dimension, bool zero) const {
    const auto value = node.value_exact<std::string>();
    if (!value) refuse(key, fmt::format("has no unit; write for example \"{}\"", dimension.example));
    try {
      return quantity(*value, dimension, zero);
    } catch (const InputError& error) {
      refuse(key, fmt::format("is \"{}\", which {}", *value, error.what()));
    }
  }

  const toml::table& table_;
  std::string prefix_;
  const std::string& path_;
  std::set<std::string> known_;
};

/// Keeps what the table does not name.
void read_speed(Table table, Speed& speed) {
  Table actions = table.table("actions");
  using schedule::Kind;
  for (const Kind kind : {Kind::forward, Kind::backward, Kind::backward_input, Kind::backward_weight, Kind::loss})
    if (const std::string key(name_of(kind)); actions.has(key)) speed.actions[kind] = actions.number(key, compute_rate);
  actions.finish();
  if (table.has("peak")) speed.peak = table.number("peak", compute_rate, 0);
  speed.products = table.curve("products", speed.products);
  if (speed.products.points.empty()) table.refuse("products", R"(is missing; write for example "400 TFLOP/s")");
  speed.attention = table.curve("attention", speed.attention);
  speed.attention_backward = table.curve("attention_backward", speed.attention_backward);
  table.finish();
}

/// What each device has of its own. Keeps what the table does not name.
void read_device(Table& table, Device& device) {
  device.speed = table.factor("speed", device.speed);
  for (const model::Dtype dtype : {model::Dtype::fp32, model::Dtype::bf16})
    if (table.has(model::name_of(dtype))) read_speed(table.table(model::name_of(dtype)), device.speeds[dtype]);
  if (device.speeds.empty()) table.refuse("bf16", "is missing: a table with the device's rates in a precision");
  device.memory_rate =
      table.number("memory_rate", data_rate, device.memory_rate > 0 ? std::optional(device.memory_rate) : std::nullopt);
  if (table.has("overhead")) device.overhead = table.number("overhead", time_span, 0);
  if (table.has("memory")) device.memory = static_cast<std::uint64_t>(table.number("memory", amount));
}

/// With the rates that follow from others.
Device completed(Device device) {
  for (auto& [dtype, speed] : device.speeds) {
    if (speed.attention.points.empty()) speed.attention = speed.products;
    if (speed.attention_backward.points.empty()) speed.attention_backward = speed.attention;
    for (Curve* const curve : {&speed.products, &speed.attention, &speed.attention_backward})
      for (auto& [size, rate] : curve->points) rate *= device.speed;
    for (auto& [kind, rate] : speed.actions) rate *= device.speed;
  }
  device.memory_rate *= device.speed;
  return device;
}

void read_devices(Table& root, Machine& machine) {
  Table table = root.table("device");
  read_device(table, machine.device);
  if (table.has("processors")) machine.processors = table.count("processors");
  machine.one_machine = table.choice<bool>("shared_by", {{"node", false}, {"machine", true}});
  machine.moving = table.number("moving", data_rate, 0);
  table.finish();
}

/// An exception changes what those before it have left of the devices of its ranks, and of the adapters that
/// these ranks use.
void read_exceptions(Table& root, Machine& machine) {
  for (Table& exception : root.tables("exceptions")) {
    const bool whole = exception.has("nodes");
    std::set<int> ranks = whole ? std::set<int>() : exception.numbers("ranks", machine.ranks()), adapters;
    for (const int node : whole ? exception.numbers("nodes", machine.nodes) : std::set<int>())
      for (int i = 0; i < machine.ranks_per_node; ++i) ranks.insert(node * machine.ranks_per_node + i);
    for (const int rank : ranks) {
      Table own = exception.table("device");
      if (exception.has("device")) read_device(own, machine.unlike.try_emplace(rank, machine.device).first->second);
      own.finish();
      adapters.insert(machine.adapter_of(rank));
    }
    if (exception.has("between") && machine.topology != Topology::one_switch)
      exception.refuse("between", "needs adapters at one switch: between.topology = \"switch\"");
    for (const int number : exception.has("between") ? adapters : std::set<int>()) {
      Table own = exception.table("between");
      Adapter& adapter =
          machine.unlike_adapters.try_emplace(number, Adapter{machine.rate, machine.latency}).first->second;
      adapter = {own.number("rate", data_rate, adapter.rate), own.number("latency", time_span, adapter.latency)};
      if (adapter.latency < machine.latency / 2) own.refuse("latency", "is below half of the others', which is theirs");
      own.finish();
    }
    exception.finish();
  }
  for (auto& [rank, device] : machine.unlike) device = completed(std::move(device));
  machine.device = completed(std::move(machine.device));
}

void read_inside(Table table, Machine& machine) {
  machine.inside =
      table.choice<Inside>("kind", {{"switch", Inside::network}, {"pairs", Inside::pairs}, {"memory", Inside::memory}});
  machine.inside_rate = table.number("rate", data_rate);
  machine.inside_latency = table.number("latency", time_span, 0);
  table.finish();
}

void read_between(Table table, Machine& machine) {
  machine.adapters = table.count("adapters", 1);
  machine.rate = table.number("rate", data_rate);
  machine.latency = table.number("latency", time_span, 0);
  machine.topology = table.choice<Topology>("topology",
      {{"switch", Topology::one_switch}, {"fat tree", Topology::fat_tree}, {"dragonfly", Topology::dragonfly}});
  machine.messages = table.count("messages", 1);
  machine.eager = table.choice<bool>("protocol", {{"rendezvous", false}, {"eager", true}});
  if (machine.topology == Topology::fat_tree) {
    machine.leaf = table.count("leaf");
    machine.spines = table.count("spines", machine.leaf);
  }
  if (machine.topology == Topology::dragonfly) {
    machine.dragonfly_groups = table.count("groups");
    machine.chassis = table.count("chassis", 1);
    machine.routers = table.count("routers");
    machine.group_links = table.count("group_links", 1);
    machine.chassis_links = table.count("chassis_links", 1);
    machine.router_links = table.count("router_links", 1);
  }
  if (machine.adapters > machine.ranks_per_node)
    table.refuse("adapters", fmt::format("are {}, more than the {} of a node; a rank uses one adapter",
                                 machine.adapters, counted(machine.ranks_per_node, "rank")));
  table.finish();
}

/// "between.rate=25 Gbit/s": what is no TOML is a text.
void assign(toml::table& table, const std::string& key, const std::string& value) {
  try {
    const toml::table parsed = toml::parse("value = " + value);
    parsed.get("value")->visit([&](const auto& node) { table.insert_or_assign(key, node); });
  } catch (const toml::parse_error&) {
    table.insert_or_assign(key, value);
  }
}

void apply(toml::table& root, const std::string& override) {
  const std::size_t equals = override.find('=');
  if (equals == std::string::npos)
    throw InputError(fmt::format("--machine-set {}: write key=value, for example between.rate=25 Gbit/s", override));
  const std::string path = override.substr(0, equals), value = override.substr(equals + 1);
  toml::table* table = &root;
  std::size_t begin = 0;
  for (std::size_t dot; (dot = path.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string key = path.substr(begin, dot - begin);
    if (!table->contains(key)) table->insert(key, toml::table{});
    table = table->get(key)->as_table();
    if (table == nullptr) throw InputError(fmt::format("--machine-set {}: {} is no table", override, key));
  }
  assign(*table, path.substr(begin), value);
}
}  // namespace

Machine parse_machine(const std::string& text, const std::string& path, const std::vector<std::string>& changes) {
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw InputError(fmt::format("{}:{}: not TOML: {}", path, error.source().begin.line, error.description()));
  }
  for (const std::string& change : changes) apply(root, change);
  Table table(root, "", path);
  Machine machine;
  machine.path = path;
  machine.name = table.text("name", path);
  machine.nodes = table.count("nodes");
  machine.ranks_per_node = table.count("ranks_per_node");
  read_devices(table, machine);
  const bool alone = machine.ranks_per_node == 1, one_node = machine.nodes == 1;
  if (Table inside = table.table("inside"); !alone || table.has("inside")) read_inside(std::move(inside), machine);
  if (Table between = table.table("between"); !one_node || table.has("between"))
    read_between(std::move(between), machine);
  read_exceptions(table, machine);
  table.finish();
  const int routers = machine.dragonfly_groups * machine.chassis * machine.routers;
  if (machine.topology == Topology::dragonfly && routers < 2)
    throw InputError(fmt::format("{}: a dragonfly of one router is a switch; write topology = \"switch\"", path));
  return machine;
}

Machine read_machine(const std::string& path, const std::vector<std::string>& changes) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    throw InputError(fmt::format("machine file {} cannot be read, or is empty", path));
  return parse_machine(text.str(), path, changes);
}
}  // namespace minitaw::predict
