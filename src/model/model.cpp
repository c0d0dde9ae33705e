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

template <class T>
Vector<T> elements_of(const Buffer& buffer, std::int64_t begin, std::int64_t count) {
  return vector_at<T>(buffer, {begin * sizeof(T)}, count);
}
}  // namespace

void Buffer::require(std::size_t needed) const {
  if (data == nullptr || bytes < needed)
    throw LogicError("a buffer has {} bytes where {} are needed", bytes, needed);
}

MicroBatch::MicroBatch(const Shape& shape)
    : vocab_(shape.vocab),
      runs_(runs_of(shape)),
      tokens_(static_cast<std::size_t>(shape.tokens())),
      memory_(Kokkos::view_alloc("minitaw::tokens", Kokkos::WithoutInitializing),
          token_bytes(shape) / sizeof(std::int32_t)) {}

void MicroBatch::fill(TokenSource& source, std::int64_t step, std::int64_t first) {
  source.fill(part(tokens_, tokens_), part(0, tokens_), step, first, runs_);
  const std::span<std::int32_t> behind = part(3 * tokens_, memory_.extent(0) - 3 * tokens_);
  segments_ = sort_positions(part(2 * tokens_, tokens_), behind, inputs(), vocab_);
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
      embeddings_tensors_(layout_.embeddings.tensors),
      plan_(plan_workspace(layout_, duties)) {
  const Shape& shape = layout_.shape;
  workspace_.require(plan_.bytes);
  const auto [first, count] = embeddings_part_;
  if (first < 0 || count < 0 || first + count > layout_.embeddings.elements)
    throw LogicError("{} elements from {} of embeddings that have {}",
        count,
        first,
        layout_.embeddings.elements);
  for (Tensor& tensor : embeddings_tensors_)
    tensor.offset -= first;
  for (int slice = 0; slice < shape.slices; ++slice) {
    saved_.push_back(plan_saved(layout_.shape_of(slice)));
    deferred_.push_back(plan_deferred(layout_.shape_of(slice)));
  }
  for (const Shard& shard : layout_.shards)
    padding_.push_back(padding_of(shard.tensors, shard.elements));
  embeddings_padding_ = padding_of(embeddings_tensors_, embeddings_part_.count);
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

namespace {
/// What there is of a block in a buffer for all blocks of a shard, if there is one.
Buffer of_block(const Buffer& shard, int index, std::size_t bytes) {
  if (shard.data == nullptr)
    return shard;
  return {shard.at<std::byte>(index * bytes, static_cast<std::int64_t>(bytes)), bytes};
}
}  // namespace

template <class E>
Block<E> Model::block(int shard, int index, const Operands& o) const {
  static const BlockRegions unsplit{};
  const Shape& shape = shape_of(o);
  const Shard& run = layout_.shards[shard];
  const BlockPlan &in_saved = saved_[o.slice], &in_deferred = deferred_[o.slice];
  const Buffer deferred = of_block(o.deferred, index, in_deferred.bytes);
  const BlockRegions& apart = deferred.data ? in_deferred.regions : unsplit;
  const std::size_t before = first_row(shape) * shape.head_dim() * sizeof(float);
  // None where only keys and values move.
  const auto gain = [&](Intermediate part) {
    return deferred.data ? vector_at<const E>(deferred, apart[part], shape.hidden)
                         : Vector<const E>();
  };
  const std::int64_t in_prefix = prefix_elements(layout_.shape);
  return Block<E>(exec_,
      shape,
      o.weights.data ? BlockTensors<const E>(o.weights, run, index)
                     : BlockTensors<const E>(gain(Intermediate::norm1), gain(Intermediate::norm2)),
      {{{in_saved.regions, of_block(o.saved, index, in_saved.bytes)},
          {apart, deferred},
          {plan_.block, workspace_}}},
      matrix_at<const float>(
          workspace_, {plan_.rope.offset + before}, shape.local_seq(), shape.head_dim()),
      attention_.kernel,
      {o.keys, o.key_gradient},
      {of_block(o.prefix, index, in_prefix * bytes_of(shape.dtype)),
          of_block(o.prefix_gradient, index, in_prefix * bytes_of(shape.key_gradient_dtype()))});
}

template <class Use>
void Model::with_block(int shard, int index, const Operands& o, const Use& use) const {
  with_element(layout_.shape.dtype, [&]<class E>(E) { use(block<E>(shard, index, o)); });
}

template <class E>
Matrix<E> Model::hidden(const Operands& o) const {
  return matrix_at<E>(o.hidden, {}, shape_of(o).tokens(), layout_.shape.hidden);
}

void Model::forward(int shard, const Operands& o) {
  for (int i = 0; i <= last_block(shard); ++i)
    with_block(shard, i, o, [&]<class E>(const Block<E>& of) { of.forward(hidden<E>(o)); });
}

template <class Use>
void Model::for_gradient(int shard, int index, const Operands& o, const Use& use) const {
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    with_element(o.gradient_type, [&]<class G>(G) {
      if constexpr (std::is_same_v<G, float> || std::is_same_v<G, E>) {
        if (!o.accumulate && index == last_block(shard))
          clear<G>(exec_, o.gradient, padding_[shard]);
        use(block<E>(shard, index, o), BlockTensors<G>(o.gradient, layout_.shards[shard], index));
      } else {
        throw LogicError("a gradient in bf16 of a model in fp32");
      }
    });
  });
}

void Model::backward(int shard, const Operands& o) {
  for (int i = last_block(shard); i >= 0; --i)
    for_gradient(shard, i, o, [&]<class E>(const Block<E>& of, const auto& into) {
      of.backward(hidden<E>(o), into, o.accumulate);
    });
}

void Model::backward_input(int shard, const Operands& o) {
  for (int i = last_block(shard); i >= 0; --i)
    with_block(shard, i, o, [&]<class E>(const Block<E>& of) {
      of.backward_input(gradient_at_output<E>(shard, i, o), gradient_at_input<E>(shard, i, o));
    });
}

void Model::backward_weight(int shard, const Operands& o) {
  for (int i = last_block(shard); i >= 0; --i)
    for_gradient(shard, i, o, [&](const auto& of, const auto& into) {
      of.backward_weight(into, o.accumulate);
    });
}

/// What the half towards the input defers of the last block begins as a copy of the hidden state's
/// gradient.
template <class E>
Matrix<E> Model::gradient_at_output(int shard, int index, const Operands& o) {
  if (o.deferred.data == nullptr)
    return hidden<E>(o);
  const Matrix<E> deferred = block<E>(shard, index, o).gradient_at_output();
  if (index == last_block(shard))
    Kokkos::deep_copy(exec_, deferred, hidden<E>(o));
  return deferred;
}

/// The half towards the input writes it where the block before defers the one at its output.
template <class E>
Matrix<E> Model::gradient_at_input(int shard, int index, const Operands& o) const {
  return o.deferred.data == nullptr || index == 0
             ? hidden<E>(o)
             : block<E>(shard, index - 1, o).gradient_at_output();
}

void Model::forward_keys(int shard, int index, const Operands& o) {
  with_block(shard, index, o, [&]<class E>(const Block<E>& of) { of.forward_keys(hidden<E>(o)); });
}

void Model::forward_attend(int shard, int index, Part heads, const Operands& o) {
  if (heads.count != layout_.shape.key_parts)
    throw LogicError(
        "attention in {} parts by heads, where there are {}", heads.count, layout_.shape.key_parts);
  with_block(shard, index, o, [&]<class E>(const Block<E>& of) {
    of.attend(heads.index);
    if (heads.index + 1 == heads.count)
      of.forward_rest(hidden<E>(o));
  });
}

void Model::forward_extend(int shard, int index, Part heads, const Operands& o) {
  with_block(shard, index, o, [&](const auto& of) { of.extend(heads.index); });
}

void Model::backward_share(int shard, int index, const Operands& o) {
  with_block(shard, index, o, [](const auto& of) { of.share_key_gradients(); });
}

void Model::backward_keys(int shard, int index, const Operands& o) {
  with_block(shard, index, o, [](const auto& of) { of.backward_keys(); });
}

void Model::backward_attend(int shard, int index, const Operands& o) {
  with_block(shard, index, o, [&]<class E>(const Block<E>& of) {
    of.backward_attend(gradient_at_output<E>(shard, index, o));
  });
}

void Model::backward_attend_weights(int shard, int index, const Operands& o) {
  for_gradient(shard, index, o, [&]<class E>(const Block<E>& of, const auto& into) {
    of.backward_attend_weights(hidden<E>(o), into, o.accumulate);
  });
}

void Model::backward_finish(int shard, int index, const Operands& o) {
  if (o.deferred.data != nullptr)
    return with_block(shard, index, o, [&]<class E>(const Block<E>& of) {
      of.backward_finish(gradient_at_input<E>(shard, index, o));
    });
  for_gradient(shard, index, o, [&]<class E>(const Block<E>& of, const auto& into) {
    of.backward_finish(hidden<E>(o), into, o.accumulate);
  });
}

const Tensor& Model::embeddings_tensor(Role role) const {
  const Tensor& tensor =
      embeddings_tensors_[static_cast<int>(role) - static_cast<int>(Role::embedding)];
  if (tensor.offset < 0 || tensor.offset + tensor.size() > embeddings_part_.count)
    throw LogicError("{} is not in the part of the embeddings that this rank holds", tensor.name);
  return tensor;
}

/// Asynchronous because the source is pinned.
Vector<std::int32_t> Model::upload(
    const Region& region, const Operands& o, const MicroBatch& batch, MicroBatch::Tokens pinned) {
  const std::int64_t expected = shape_of(o).tokens();
  if (std::ssize(batch.inputs()) != expected || batch.segments().empty())
    throw LogicError("a micro-batch of {} tokens in {} segments where there must be {} tokens",
        batch.inputs().size(),
        batch.segments().size(),
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

void Model::embed(const Operands& o, const MicroBatch& batch) {
  const Vector<std::int32_t> tokens = upload(plan_.tokens, o, batch, batch.inputs());
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    kernels::embedding_forward(exec_,
        hidden<E>(o),
        matrix_of<const E>(o.weights, embeddings_tensor(Role::embedding)),
        tokens);
  });
}

/// Written: zeros first, because the rows of tokens that the micro-batch lacks are part of the
/// gradient.
void Model::embed_backward(const Operands& o, const MicroBatch& batch) {
  const Vector<std::int32_t> index = upload(plan_.index, o, batch, batch.index());
  const auto part = [&](MicroBatch::Tokens tokens) {
    return kernels::TokensIn(index.data() + (tokens.data() - batch.index().data()), tokens.size());
  };
  const auto gradient = matrix_of<float>(o.gradient, embeddings_tensor(Role::embedding));
  if (!o.accumulate) {
    clear<float>(exec_, o.gradient, embeddings_padding_);
    Kokkos::deep_copy(exec_, gradient, 0.0F);
  }
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    kernels::embedding_backward<E>(exec_,
        gradient,
        hidden<E>(o),
        part(batch.inputs()),
        part(batch.order()),
        part(batch.segments()));
  });
}

void Model::loss(const Operands& o, double* loss, const MicroBatch& batch) {
  const Shape& shape = shape_of(o);
  const Vector<std::int32_t> targets = upload(plan_.tokens, o, batch, batch.targets());
  if (!o.accumulate)
    clear<float>(exec_, o.gradient, embeddings_padding_);
  const Tensor& norm = embeddings_tensor(Role::norm);
  const Tensor& head = embeddings_tensor(Role::head);
  const std::int64_t tile = loss_tile(shape);
  with_element(shape.dtype, [&]<class E>(E) {
    const auto gain = vector_of<const E>(o.weights, norm);
    const auto weight = matrix_of<const E>(o.weights, head);
    for (std::int64_t begin = 0; begin < shape.tokens(); begin += tile) {
      const std::int64_t rows = std::min(tile, shape.tokens() - begin);
      const bool adds = o.accumulate || begin > 0;
      const auto part =
          matrix_at<E>(o.hidden, {begin * shape.hidden * sizeof(E)}, rows, shape.hidden);
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
          exec_, matrix_of<float>(o.gradient, head), Matrix<const E>(logits), normed, adds);
      kernels::rmsnorm_backward(exec_, part, partial, slope, {}, part, rstd, gain);
      kernels::rmsnorm_backward_gain(exec_, vector_of<float>(o.gradient, norm), partial, adds);
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

OptimiserState::OptimiserState(const Buffer& buffer, Dtype dtype, std::int64_t elements) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  const auto part = [&](int index) {
    return Buffer{buffer.at<std::byte>(index * bytes, bytes), bytes};
  };
  moment1 = part(0);
  moment2 = part(1);
  if (dtype != Dtype::fp32)
    master = part(2);
}

/// The tensors in `range` of a flat buffer, whose state begins there, weights and gradient at
/// `origin`.
void Model::update_range(const std::vector<Tensor>& tensors,
    Range range,
    std::int64_t origin,
    const UpdateOperands& o,
    const AdamW& adamw,
    int step) {
  const std::int64_t end = range.begin + range.count;
  const OptimiserState parts(o.state, layout_.shape.dtype, range.count);
  AdamW of_gains = adamw;
  of_gains.decay = 0;
  with_element(layout_.shape.dtype, [&]<class E>(E) {
    for (const Tensor& tensor : tensors) {
      const std::int64_t first = std::max(range.begin, tensor.offset),
                         count = std::min(end, tensor.offset + tensor.size()) - first,
                         at = first - range.begin, place = first - origin;
      if (count <= 0)
        continue;
      const auto own = elements_of<E>(o.weights, place, count);
      Vector<float> master;
      if constexpr (std::is_same_v<E, float>)
        master = own;
      else
        master = elements_of<float>(parts.master, at, count);
      kernels::adamw<E>(exec_,
          own,
          master,
          elements_of<float>(parts.moment1, at, count),
          elements_of<float>(parts.moment2, at, count),
          elements_of<float>(o.gradient, place, count),
          tensor.is_gain() ? of_gains : adamw,
          step,
          o.squares.as<const float>());
    }
  });
}

void Model::square(Buffer squares, Buffer gradient, bool accumulate) {
  static_assert(squares_bytes == squares_scratch + kernels::most_square_partials * sizeof(double));
  const auto count = static_cast<std::int64_t>(gradient.bytes / sizeof(float));
  kernels::add_squares(exec_,
      squares.as<float>(),
      Buffer{squares.data + squares_scratch, squares.bytes - squares_scratch}.as<double>(),
      elements_of<float>(gradient, 0, count),
      accumulate);
}

void Model::update(int shard, Part slice, const UpdateOperands& o, const AdamW& adamw, int step) {
  const Shard& run = layout_.shards[static_cast<std::size_t>(shard)];
  const Range range = range_of(run.elements, slice);
  update_range(run.tensors, range, range.begin, o, adamw, step);
}

void Model::update_embeddings(int slice, const UpdateOperands& o, const AdamW& adamw, int step) {
  const std::int64_t size = layout_.embeddings.slice, begin = slice * size - embeddings_part_.begin;
  if (begin < 0 || begin + size > embeddings_part_.count)
    throw LogicError("slice {} of the embeddings is not in the part that this rank holds", slice);
  update_range(embeddings_tensors_, {begin, size}, 0, o, adamw, step);
}
}  // namespace minitaw::model
