// SPDX-License-Identifier: BSD-3-Clause
#include "harness/check.hpp"
#include <algorithm>
#include <cmath>
#include <optional>
#include "base/bf16.hpp"
#include "base/error.hpp"
#include "comm/mpi/mpi.hpp"
#include "model/reference.hpp"

namespace minitaw::harness {
namespace {
using comm::mpi::check_mpi, model::ReferenceTensors, schedule::SlotClass;

template <class T>
std::vector<float> to_host(model::Buffer buffer) {
  using Device =
      Kokkos::View<const T*, model::ExecutionSpace::memory_space, Kokkos::MemoryUnmanaged>;
  const Device device(buffer.as<T>(), buffer.bytes / sizeof(T));
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), device);
  std::vector<float> values(host.size());
  convert<false>(values.data(), host.data(), std::ssize(values));
  return values;
}

/// Elements of a slot of one rank: a part of a flat buffer of the model.
struct HeldPart {
  int rank;
  schedule::Slot slot;
  Range range;
};

/// Slice `k` of a shard, or of the embeddings (shard -1), where the first rank of the first replica
/// that updates it has it.
HeldPart held_part(const engine::Runtime& runtime, Which which, int shard, int k) {
  const schedule::Program& program = runtime.program();
  const model::Layout& layout = runtime.layout();
  const bool ends = shard < 0;
  const Range part = ends ? range_of(layout.embeddings.elements, {k, program.embeddings_parts})
                          : range_of(layout.shards[shard].elements, {k, program.owned_parts});
  for (const int r : indices(program.ranks))
    for (const schedule::Action& a : program.ranks[r].actions) {
      const bool updates = a.kind == schedule::Kind::update && of_embeddings(a.payload) == ends;
      if (!updates || a.shard != (ends ? k : shard) || !(ends || program.ranks[r].part == k))
        continue;
      const auto operand =
          which == Which::weights ? schedule::Operand::weights : schedule::Operand::gradient;
      const Range there = held(program, r, a[operand].cls, shard, layout);
      return {r, a[operand], {part.begin - there.begin, part.count}};
    }
  throw LogicError("engine: nothing updates part {} of shard {}", k, shard);
}

std::vector<float> values_of(const engine::Runtime& runtime, const HeldPart& held) {
  const model::Dtype dtype = dtype_of(held.slot.cls, runtime.layout().shape);
  const std::size_t width = model::bytes_of(dtype);
  const model::Buffer slot = runtime.arena().slot(held.slot);
  const model::Buffer part{slot.data + held.range.begin * width, held.range.count * width};
  return dtype == model::Dtype::fp32 ? to_host<float>(part) : to_host<Bf16>(part);
}

/// Adds the values of a part to those that rank 0 has. Collective.
void fetch(
    const engine::Runtime& runtime, const HeldPart& held, MPI_Comm comm, std::vector<float>& all) {
  const bool mine = held.rank == runtime.rank(), first = runtime.rank() == 0;
  if (!mine && !first)
    return;
  const int count = static_cast<int>(held.range.count);
  std::vector<float> values = mine ? values_of(runtime, held) : std::vector<float>(count);
  if (!first)
    check_mpi(MPI_Send(values.data(), count, MPI_FLOAT, 0, 0, comm), "sending tensors");
  else if (!mine)
    check_mpi(MPI_Recv(values.data(), count, MPI_FLOAT, held.rank, 0, comm, MPI_STATUS_IGNORE),
        "gathering tensors");
  if (first)
    all.insert(all.end(), values.begin(), values.end());
}

/// The root mean square of some values, or errors; 0 of none.
class RootMeanSquare {
public:
  void add(double value) {
    sum_ += value * value;
    ++count_;
  }

  template <class T>
  RootMeanSquare& add_all(std::span<const T> values) {
    for (const double value : values)
      add(value);
    return *this;
  }

  double value() const {
    return std::sqrt(sum_ / static_cast<double>(std::max<std::size_t>(1, count_)));
  }

private:
  double sum_ = 0;
  std::size_t count_ = 0;
};

/// The part of a name that tensors of all layers have in common: "w13".
std::string_view role_of(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}

/// Where gradients cancel, rounding does not shrink: a tensor counts as at least this share of the
/// root mean square of all (docs/verify.md, "What is compared").
constexpr double least_share = 0.1;

/// No tensor counts as smaller, so that two zeros do not differ.
constexpr double least_size = 1e-9;

void require_same(std::size_t a, std::size_t b) {
  if (a != b)
    throw LogicError("engine: {} and {} values cannot be compared", a, b);
}

float rounded(double value) {
  return to_float(to_bf16(static_cast<float>(value)));
}

/// Not-a-number is the worst of all and must not compare as small.
bool is_worse(double error, double worst) {
  return !(error <= worst) && !std::isnan(worst);
}

/// Calls visit(name, values) for every tensor, in the order of gather().
template <class Tensors, class Visit>
void for_each_tensor(const model::Layout& layout, Tensors& tensors, const Visit& visit) {
  for (auto flat = tensors.begin(); const model::Flat* part : layout.parts()) {
    for (const model::Tensor& t : part->tensors)
      visit(t.name, std::span(*flat).subspan(t.offset, t.size()));
    ++flat;
  }
}

/// The settings of AdamW, read from the case by the judge itself: what the program reads wrongly
/// must differ.
model::AdamW optimiser_of(const Case& c) {
  return {.learning_rate = static_cast<float>(c.learning_rate),
      .clip_norm = static_cast<float>(c.clip_norm)};
}

model::Reference make_model(const Case& c) {
  const model::Layout layout = model::make_layout(c.shape, {1, 1});
  return model::Reference(layout, model::initial_weights(layout, c.seed));
}

std::vector<NamedTensor> named(const model::Layout& layout, const ReferenceTensors& tensors) {
  std::vector<NamedTensor> result;
  for_each_tensor(layout, tensors, [&](const std::string& name, std::span<const double> values) {
    result.push_back({name, {values.begin(), values.end()}});
  });
  return result;
}

/// Gathered tensors in the layout of one rank, whose order they have.
ReferenceTensors flattened(const model::Layout& layout, const std::vector<NamedTensor>& tensors) {
  ReferenceTensors result = model::reference_zeros(layout);
  auto next = tensors.begin();
  for_each_tensor(layout, result, [&](const std::string& name, std::span<double> values) {
    if (next == tensors.end() || next->name != name)
      throw LogicError("engine: {} is not where it was expected", name);
    std::ranges::copy(next++->values, values.begin());
  });
  return result;
}

Difference compare_weights(
    const std::vector<NamedTensor>& weights, const model::Reference& model, double slack) {
  Difference result;
  auto next = weights.begin();
  for_each_tensor(model.layout(),
      model.weights(),
      [&](const std::string& name, std::span<const double> wanted) {
        const double error = weight_error(*next++, wanted, model.layout().shape.dtype, slack);
        if (is_worse(error, result.worst))
          result = {error, name};
      });
  return result;
}

/// Executes a step. Returns its loss, and its gradients on rank 0. Collective.
std::pair<double, std::vector<NamedTensor>> run_step(engine::Runtime& runtime, MPI_Comm comm) {
  runtime.prepare();
  (void)runtime.step();
  double loss = runtime.loss();
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, comm), "adding up the loss");
  return {loss, gather(runtime, Which::gradients, comm)};
}

/// Keeps what a step has computed: every loss, the gradients of the first and of the last step.
void keep(Training& reference, bool is_last, double loss, std::vector<NamedTensor> gradients) {
  reference.losses.push_back(loss);
  if (reference.losses.size() == 1)
    reference.gradients = std::move(gradients);
  else if (is_last)
    reference.later = std::move(gradients);
}
}  // namespace

std::vector<NamedTensor> gather(const engine::Runtime& runtime, Which which, MPI_Comm comm) {
  std::vector<NamedTensor> result;
  const auto add = [&](const model::Flat& part, int shard, int parts) {
    std::vector<float> flat;
    for (int k = 0; k < parts; ++k)
      fetch(runtime, held_part(runtime, which, shard, k), comm, flat);
    if (runtime.rank() == 0)
      for (const model::Tensor& t : part.tensors)
        result.push_back({t.name, {flat.begin() + t.offset, flat.begin() + t.offset + t.size()}});
  };
  const model::Layout& layout = runtime.layout();
  for (int s = 0; s < static_cast<int>(layout.shards.size()); ++s)
    add(layout.shards[s], s, runtime.program().owned_parts);
  add(layout.embeddings, -1, runtime.program().embeddings_parts);
  return result;
}

double loss_error(double a, double b) {
  return std::abs(a - b) / std::max(std::abs(b), 1.0);
}

Difference compare_gradients(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  if (a.size() != b.size())
    throw LogicError("engine: models with different tensors cannot be compared");
  RootMeanSquare all;
  std::map<std::string_view, RootMeanSquare> alike;
  for (const NamedTensor& t : b) {
    all.add_all<float>(t.values);
    alike[role_of(t.name)].add_all<float>(t.values);
  }
  const double least = std::max(least_share * all.value(), least_size);

  Difference result;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::vector<float>&found = a[i].values, &wanted = b[i].values;
    require_same(found.size(), wanted.size());
    RootMeanSquare apart;
    for (std::size_t k = 0; k < found.size(); ++k)
      apart.add(double{found[k]} - wanted[k]);
    const double size = std::max({RootMeanSquare().add_all<float>(wanted).value(),
        alike[role_of(b[i].name)].value(),
        least});
    const double relative = apart.value() / size;
    if (is_worse(relative, result.worst))
      result = {relative, a[i].name};
  }
  return result;
}

double weight_error(
    const NamedTensor& tensor, std::span<const double> wanted, model::Dtype dtype, double slack) {
  require_same(tensor.values.size(), wanted.size());
  const double size = RootMeanSquare().add_all(wanted).value();
  RootMeanSquare apart;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double value = tensor.values[i];
    double right = wanted[i];
    if (dtype == model::Dtype::bf16) {
      const double either = slack * std::max(std::abs(right), size);
      right = std::clamp<double>(value, rounded(right - either), rounded(right + either));
    }
    apart.add(value - right);
  }
  return apart.value() / std::max(size, least_size);
}

double Check::Figure::share() const {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error / allowed;
}

std::vector<Check::Figure> Check::figures(const Tolerance& t) const {
  const std::string reference = "the " + t.reference;
  return {{"the first loss", first.loss, t.first.loss, reference},
      {"the gradient of " + first.gradient.tensor,
          first.gradient.worst,
          t.first.gradient,
          reference},
      {"a later loss", later.loss, t.later.loss, reference},
      {"the last gradient of " + later.gradient.tensor,
          later.gradient.worst,
          t.later.gradient,
          reference},
      {weights.tensor,
          weights.worst,
          t.weights,
          "AdamW on the same gradients in double precision"}};
}

Check::Figure Check::closest(const Tolerance& t) const {
  return std::ranges::max(figures(t), {}, &Figure::share);
}

bool Check::passes(const Tolerance& t) const {
  return failure(t).empty();
}

std::string Check::failure(const Tolerance& t) const {
  if (!bytes.empty())
    return bytes;
  for (const Figure& f : figures(t))
    if (!(f.error <= f.allowed))  // not-a-number is out
      return fmt::format(
          "{} differs from {} by {:.1e} (allowed {:.1e})", f.what, f.from, f.error, f.allowed);
  return unused;
}

Check compare(const Training& a, const Training& b) {
  Check check;
  for (std::size_t s = 0; s < b.losses.size(); ++s) {
    double& worst = s == 0 ? check.first.loss : check.later.loss;
    const double error = loss_error(a.losses[s], b.losses[s]);
    if (is_worse(error, worst))
      worst = error;
  }
  check.first.gradient = compare_gradients(a.gradients, b.gradients);
  check.later.gradient = compare_gradients(a.later, b.later);
  check.weights = a.weights;
  return check;
}

Case serial_case(const Case& c) {
  Case baseline = on_one_rank(c);
  baseline.schedule = "serial";
  return baseline;
}

std::string reference_key(const Case& c) {
  return deck::identity(serial_case(c));
}

Training run_steps(engine::Runtime& runtime, const Case& c, int steps, MPI_Comm comm) {
  // On rank 0: AdamW alone, on the gradients that come from the case.
  std::optional<model::Reference> in_double;
  if (runtime.rank() == 0)
    in_double = make_model(serial_case(c));
  Training executed;
  for (int s = 0; s < steps; ++s) {
    auto [loss, gradients] = run_step(runtime, comm);
    if (in_double)
      in_double->update(flattened(in_double->layout(), gradients), optimiser_of(c), s + 1);
    keep(executed, s + 1 == steps, loss, std::move(gradients));
  }
  const std::vector<NamedTensor> weights = gather(runtime, Which::weights, comm);
  if (in_double)
    executed.weights = compare_weights(weights, *in_double, serial_tolerance(c).weights);
  return executed;
}

Training serial_reference(const Case& c, int steps) {
  engine::Runtime runtime(plan_of(serial_case(c)), 0);
  runtime.connect();
  return run_steps(runtime, c, steps, MPI_COMM_SELF);
}

Training float64_reference(const Case& any, int steps) {
  const Case c = serial_case(any);
  model::Reference model = make_model(c);
  const model::Layout& layout = model.layout();
  model::TokenSource source(c.shape, c.data, c.seed);
  std::vector<std::int32_t> tokens(c.shape.tokens()), targets(c.shape.tokens());
  const double scale = 1.0 / (static_cast<double>(c.micro_batches) * c.shape.tokens());
  Training reference;
  for (int s = 0; s < steps; ++s) {
    ReferenceTensors gradient = model::reference_zeros(layout);
    double loss = 0;
    for (int m = 0; m < c.micro_batches; ++m) {
      source.fill(tokens, targets, s, m * c.shape.micro_batch, model::runs_of(c.shape));
      loss += model.accumulate(gradient, tokens, targets, scale);
    }
    keep(reference, s + 1 == steps, loss, named(layout, gradient));
    model.update(gradient, optimiser_of(c), s + 1);
  }
  return reference;
}

const Training& References::of(const Case& c) {
  constexpr std::size_t most_values = std::size_t{1} << 25;  // 128 MiB
  const std::string key = reference_key(c);
  if (const auto at = known_.find(key); at != known_.end())
    return at->second;
  if (values_ > most_values) {
    known_.clear();
    values_ = 0;
  }
  engine::Runtime runtime(plan_of(serial_case(c)), 0);
  runtime.connect();
  auto [loss, gradients] = run_step(runtime, MPI_COMM_SELF);
  Training& made = known_[key];
  made = {.losses = {loss}, .gradients = std::move(gradients)};
  for (const NamedTensor& t : made.gradients)
    values_ += t.values.size();
  return made;
}
}  // namespace minitaw::harness
