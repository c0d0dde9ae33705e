// SPDX-License-Identifier: BSD-3-Clause
#include "model/model.hpp"
#include <algorithm>
#include <type_traits>
#include "base/error.hpp"
#include "model/block.hpp"

namespace minitaw::model {
namespace {
/// The parts of a buffer of `elements` that `tensors`, in ascending order, do not cover; they may
/// reach beyond both ends. None lies between tensors whose sizes are multiples of `alignment`, as
/// in models worth training.
std::vector<Range> padding_of(std::span<const Tensor> tensors, std::int64_t elements) {
  std::vector<Range> padding;
  std::int64_t end = 0;
  const auto leave = [&](std::int64_t until) {
    if (end < until)
      padding.push_back({end, until - end});
  };
  for (const Tensor& tensor : tensors) {
    leave(std::min(tensor.offset, elements));
    end = std::max(end, tensor.offset + tensor.size());
  }
  leave(elements);
  return padding;
}

/// Zeros in the padding of a buffer of T: it travels and is summed; another shard may have left
/// something.
template <class T>
void clear(const ExecutionSpace& exec, const Buffer& buffer, const std::vector<Range>& padding) {
  for (const Range& range : padding) {
    const std::size_t bytes = range.count * sizeof(T);
    Kokkos::deep_copy(exec,
        Vector<std::byte>(buffer.at<std::byte>(range.begin * sizeof(T), bytes), bytes),
        std::byte{0});
  }
}
}  // namespace

MicroBatch::MicroBatch(const Shape& shape)
    : vocab_(shape.vocab),
      runs_(runs_of(shape)),
      tokens_(static_cast<std::size_t>(shape.tokens())),
      memory_(Kokkos::view_alloc("minitaw::tokens", Kokkos::WithoutInitializing),
          token_bytes(shape) / sizeof(std::int32_t)) {}

void MicroBatch::fill(TokenSource& source, std::int64_t step, std::int64_t first) {
  source.fill(part(tokens_, tokens_), part(0, tokens_), step, first, runs_);
  const std::span<std::int32_t> behind = part(3 * tokens_, memory_.extent(0) - 3 * tokens_);
  starts_ = sort_positions(part(2 * tokens_, tokens_), behind, inputs(), vocab_);
}

kernels::AttentionSizes attention_sizes(const Shape& shape) {
  return {static_cast<int>(shape.micro_batch),
      static_cast<int>(shape.local_seq()),
      shape.heads,
      shape.kv_heads,
      static_cast<int>(shape.head_dim())};
}

namespace {
/// `first_row`: of those that the rank has of a sequence.
std::vector<kernels::QueryRun> query_runs(const Shape& shape, std::int64_t first_row = 0) {
  return list_of(runs_of(shape), [=](const SequenceRun& run) {
    return kernels::QueryRun{static_cast<int>(first_row + run.row),
        static_cast<int>(run.count),
        static_cast<int>(run.position)};
  });
}

/// Rows of a rank's part of a sequence that come before those of a slice.
std::int64_t first_row(const Shape& slice) {
  return slice.span.begin / slice.context.count;
}
}  // namespace

std::vector<kernels::AttentionPart> attention_parts(const Shape& shape, int key_part) {
  const kernels::AttentionSizes sizes = attention_sizes(shape);
  if (!shape.keys_apart())
    return {sizes};
  const int heads = shape.kv_heads / shape.key_parts,
            chunk = static_cast<int>(shape.has_slices() ? shape.seq : shape.chunk());
  return list_of(query_runs(shape), [&](const kernels::QueryRun& run) {
    return kernels::AttentionPart(
        sizes, run, {key_part * heads, heads}, shape.key_values() / shape.key_parts, chunk);
  });
}

namespace {
/// All calls of attention that a rank makes for a block, of every slice and part.
std::vector<kernels::AttentionPart> attention_calls(const Layout& layout) {
  std::vector<kernels::AttentionPart> calls;
  for (int slice = 0; slice < layout.shape.slices; ++slice)
    for (int p = 0; p < layout.shape.key_parts; ++p)
      std::ranges::copy(attention_parts(layout.shape_of(slice), p), std::back_inserter(calls));
  return calls;
}
}  // namespace

Model::Model(ExecutionSpace exec,
    Layout layout,
    double loss_scale,
    Buffer workspace,
    kernels::Attention attention,
    std::optional<Range> embeddings_part,
    const Duties& duties)
    : exec_(std::move(exec)),
      layout_(std::move(layout)),
      loss_scale_(loss_scale),
      workspace_(workspace),
      embeddings_part_(embeddings_part.value_or(Range{0, layout_.embeddings.elements})),
      embeddings_(layout_.embeddings),
      plan_(plan_workspace(layout_, duties)) {
  const Shape& shape = layout_.shape;
  (void)workspace_.at<std::byte>(0, plan_.bytes);  // throws if it is smaller
  const auto [first, count] = embeddings_part_;
  if (first < 0 || count < 0 || first + count > layout_.embeddings.elements)
    throw LogicError("{} elements from {} of embeddings that have {}",
        count,
        first,
        layout_.embeddings.elements);
  for (Tensor& tensor : embeddings_.tensors)
    tensor.offset -= first;
  for (int slice = 0; slice < shape.slices; ++slice) {
    saved_.push_back(plan_saved(layout_.shape_of(slice)));
    deferred_.push_back(plan_deferred(layout_.shape_of(slice)));
  }
  for (const Shard& shard : layout_.shards)
    padding_.push_back(padding_of(shard.tensors, shard.elements));
  embeddings_padding_ = padding_of(embeddings_.tensors, embeddings_part_.count);
  kernels::prepare(exec_);
  const Matrix<float> rope =
      matrix_at<float>(workspace_, plan_.rope, shape.local_seq(), shape.head_dim());
  with_element(shape.dtype, [&]<class E>(E) {
    const std::vector<kernels::AttentionPart> calls = attention_calls(layout_);
    attention_ = kernels::resolve_attention<E>(attention, calls);
    for (const kernels::AttentionPart& part : calls)
      kernels::attention_prepare<E>(exec_, part, attention_.kernel);
    for (int slice = 0; slice < shape.slices; ++slice) {
      const Shape& part_of_it = layout_.shape_of(slice);
      kernels::rope_table(exec_, rope, query_runs(part_of_it, first_row(part_of_it)));
    }
  });
}

template <class E>
Matrix<E> Model::hidden(const Buffer& buffer, int slice) const {
  return matrix_at<E>(buffer, {}, layout_.shape_of(slice).tokens(), layout_.shape.hidden);
}

template <class E>
Matrix<E> Model::deferred_gradient(const ShardPass& pass, int index, const PassBuffers& b) const {
  const BlockPlan& plan = deferred_[pass.slice];
  return matrix_at<E>(b.deferred.part(index, plan.bytes),
      plan.regions[Intermediate::output_gradient],
      layout_.shape_of(pass.slice).tokens(),
      layout_.shape.hidden);
}

template <class E>
Block<E> Model::block(const ShardPass& pass, int index, const PassBuffers& b) const {
  const Shape& shape = layout_.shape_of(pass.slice);
  const BlockPlan &saved = saved_[pass.slice], &deferred = deferred_[pass.slice];
  const Buffer of_deferred = b.deferred.part(index, deferred.bytes);
  const auto gain = [&](Intermediate which) {
    return vector_at<const E>(of_deferred, deferred.regions[which], shape.hidden);
  };
  BlockTensors<const E> weights;
  if (pass.direction == Direction::backward_weight)
    weights.norm1 = gain(Intermediate::norm1), weights.norm2 = gain(Intermediate::norm2);
  else if (pass.segment != Segment::extend && pass.segment != Segment::share)
    weights = {b.weights, layout_.shards[pass.shard], index};

  const std::int64_t prefix = prefix_elements(layout_.shape);
  const KeyBuffers of_slices{b.of_slices.key_values.part(index, prefix * bytes_of(shape.dtype)),
      b.of_slices.gradient.part(index, prefix * bytes_of(shape.key_gradient_dtype()))};
  const std::size_t first_angle = first_row(shape) * shape.head_dim() * sizeof(float);
  return {exec_,
      shape,
      weights,
      {shape,
          {&saved.regions, b.saved.part(index, saved.bytes)},
          {pass.is_half() ? &deferred.regions : nullptr, of_deferred},
          {&plan_.block, workspace_}},
      {exec_, shape, b.of_ranks, of_slices},
      matrix_at<const float>(
          workspace_, {plan_.rope.offset + first_angle}, shape.local_seq(), shape.head_dim()),
      attention_.kernel};
}

void Model::run(const ShardPass& pass, const PassBuffers& b) {
  const int parts = pass.is_of_heads() ? layout_.shape.key_parts : 1;
  if (pass.heads.count != parts)
    throw LogicError("attention in {} parts by heads, where there are {}", pass.heads.count, parts);
  const int blocks = layout_.shards[pass.shard].layers;
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    if (pass.segment != Segment::all)
      return run_block<E>(pass, pass.block, b);
    for (int i = 0; i < blocks; ++i)
      run_block<E>(pass, pass.direction == Direction::forward ? i : blocks - 1 - i, b);
  });
}

template <class E>
void Model::run_block(const ShardPass& pass, int index, const PassBuffers& b) {
  const Block<E> of = block<E>(pass, index, b);
  const Matrix<E> x = pass.uses_hidden() ? hidden<E>(b.hidden, pass.slice) : Matrix<E>();
  if (pass.direction == Direction::forward)
    return of.forward(x, pass.segment, pass.heads.index);

  if (pass.segment == Segment::share)
    return of.backward(pass, x, x, BlockTensors<float>(), false);

  // A half defers the gradient at the output of each block, of the last one as a copy of x.
  const bool is_last = index + 1 == layout_.shards[pass.shard].layers;
  const Matrix<E> dy = pass.is_half() ? deferred_gradient<E>(pass, index, b) : x;
  const Matrix<E> dx = pass.is_half() && index > 0 ? deferred_gradient<E>(pass, index - 1, b) : x;
  if (pass.direction == Direction::backward_input && is_last &&
      includes(pass.segment, Segment::attend))
    Kokkos::deep_copy(exec_, dy, x);
  if (!pass.gives_weight_gradients())
    return of.backward(pass, dy, dx, BlockTensors<float>(), false);

  with_element(b.gradient.dtype, [&]<class G>(G) {
    if constexpr (std::is_same_v<G, float> || std::is_same_v<G, E>) {
      if (!b.gradient.accumulate && is_last)
        clear<G>(exec_, b.gradient.buffer, padding_[pass.shard]);
      const BlockTensors<G> gradient(b.gradient.buffer, layout_.shards[pass.shard], index);
      of.backward(pass, dy, dx, gradient, b.gradient.accumulate);
    } else {
      throw LogicError("a gradient in bf16 of a model in fp32");
    }
  });
}

const Tensor& Model::embeddings_tensor(Role role) const {
  const Tensor& tensor = embeddings_.tensor(role);
  if (tensor.offset < 0 || tensor.offset + tensor.size() > embeddings_part_.count)
    throw LogicError("{} is not in the part of the embeddings that this rank holds", tensor.name);
  return tensor;
}

/// Asynchronous because the source is pinned.
Vector<std::int32_t> Model::upload(
    const Region& region, int slice, const MicroBatch& batch, MicroBatch::Tokens pinned) {
  const std::int64_t expected = layout_.shape_of(slice).tokens();
  if (std::ssize(batch.inputs()) != expected || batch.starts().empty())
    throw LogicError("a micro-batch of {} tokens with {} starts where there must be {} tokens",
        batch.inputs().size(),
        batch.starts().size(),
        expected);
  using Pinned = Kokkos::View<const std::int32_t*,
      Kokkos::LayoutRight,
      kernels::PinnedSpace,
      Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const auto target =
      vector_at<std::int32_t>(workspace_, region, static_cast<std::int64_t>(pinned.size()));
  Kokkos::deep_copy(exec_, target, Pinned(pinned.data(), pinned.size()));
  return target;
}

void Model::embed(const EndBuffers& b, const MicroBatch& batch) {
  const Vector<std::int32_t> tokens = upload(plan_.tokens, b.slice, batch, batch.inputs());
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    kernels::embedding_forward(exec_,
        hidden<E>(b.hidden, b.slice),
        matrix_of<const E>(b.weights, embeddings_tensor(Role::embedding)),
        tokens);
  });
}

/// Written: zeros first, because the rows of tokens that the micro-batch lacks are part of the
/// gradient. So is the final norm where the head is tied: the loss may be of another rank.
void Model::embed_backward(const EndBuffers& b, const MicroBatch& batch) {
  const Vector<std::int32_t> index = upload(plan_.index, b.slice, batch, batch.index());
  const auto part = [&](MicroBatch::Tokens tokens) {
    return kernels::TokensIn(index.data() + (tokens.data() - batch.index().data()), tokens.size());
  };
  const auto gradient = matrix_of<float>(b.gradient, embeddings_tensor(Role::embedding));
  if (!b.accumulate && layout_.shape.tied)
    clear<float>(exec_, b.gradient, {{0, embeddings_part_.count}});
  else if (!b.accumulate) {
    clear<float>(exec_, b.gradient, embeddings_padding_);
    Kokkos::deep_copy(exec_, gradient, 0.0F);
  }
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    kernels::embedding_backward<E>(exec_,
        gradient,
        hidden<E>(b.hidden, b.slice),
        part(batch.inputs()),
        part(batch.order()),
        part(batch.starts()));
  });
}

void Model::loss(const EndBuffers& b, double* loss, const MicroBatch& batch) {
  const Shape& shape = layout_.shape_of(b.slice);
  const Vector<std::int32_t> targets = upload(plan_.tokens, b.slice, batch, batch.targets());
  if (!b.accumulate)
    clear<float>(exec_, b.gradient, embeddings_padding_);
  const Tensor& norm = embeddings_tensor(Role::norm);
  const Tensor& head = embeddings_tensor(Role::head);
  const std::int64_t tile = loss_tile(shape);
  with_element(shape.dtype, [&]<class E>(E) {
    const auto gain = vector_of<const E>(b.weights, norm);
    const auto weight = matrix_of<const E>(b.weights, head);
    for (std::int64_t begin = 0; begin < shape.tokens(); begin += tile) {
      const std::int64_t rows = std::min(tile, shape.tokens() - begin);
      const bool adds = b.accumulate || begin > 0;
      const auto part =
          matrix_at<E>(b.hidden, {begin * shape.hidden * sizeof(E)}, rows, shape.hidden);
      const kernels::TokensIn wanted(targets.data() + begin, rows);
      const auto normed = matrix_at<E>(workspace_, plan_.tile_normed, rows, shape.hidden);
      const auto slope = matrix_at<E>(workspace_, plan_.tile_gradient, rows, shape.hidden);
      const auto rstd = vector_at<float>(workspace_, plan_.tile_rstd, rows);
      const auto logits = matrix_at<E>(workspace_, plan_.tile_logits, rows, shape.vocab);
      const auto losses = vector_at<double>(workspace_, plan_.tile_losses, rows);
      const auto partial = matrix_at<float>(workspace_,
          plan_.block[Intermediate::gain_partial1],
          kernels::rmsnorm_chunks(rows),
          shape.hidden);
      kernels::rmsnorm_forward(exec_, normed, rstd, {}, part, gain);
      kernels::linear_forward(exec_, logits, normed, weight);
      kernels::cross_entropy(exec_, losses, logits, wanted, static_cast<float>(loss_scale_));
      kernels::sum_losses(exec_, loss, losses, loss_scale_);
      kernels::linear_backward_input(exec_, slope, logits, weight);
      kernels::linear_backward_weight(
          exec_, matrix_of<float>(b.gradient, head), Matrix<const E>(logits), normed, adds);
      kernels::rmsnorm_backward(exec_, part, partial, slope, {}, part, rstd, gain);
      kernels::rmsnorm_backward_gain(exec_, vector_of<float>(b.gradient, norm), partial, adds);
    }
  });
}

void draw(Buffer weights,
    Buffer master,
    std::vector<Tensor> tensors,
    Range part,
    const Shape& shape,
    std::uint64_t seed) {
  const ExecutionSpace exec;
  for (Tensor& tensor : tensors)
    tensor.offset -= part.begin;
  const std::vector<Range> padding = padding_of(tensors, part.count);
  with_element(shape.dtype, [&]<class E>(E) {
    if (weights.data)
      clear<E>(exec, weights, padding);
    if (master.data)
      clear<float>(exec, master, padding);
    for (const Tensor& tensor : tensors) {
      const std::int64_t begin = std::max<std::int64_t>(tensor.offset, 0),
                         count = std::min(tensor.offset + tensor.size(), part.count) - begin;
      if (count > 0)
        kernels::uniform<E>(exec,
            weights.data ? elements_of<E>(weights, begin, count) : Vector<E>(),
            master.data ? elements_of<float>(master, begin, count) : Vector<float>(),
            begin - tensor.offset,
            initial_row(tensor, shape, seed));
    }
  });
  exec.fence("minitaw::model::draw");
}
}  // namespace minitaw::model
