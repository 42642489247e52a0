#include "models/device/device_step.h"

#include <algorithm>

#include "base/check.h"
#include "device/device_pool.h"

namespace sluice {
namespace {

// Maximum number of row tiles, if each tile has rows of one slot.
int64_t MostTiles(int64_t rows, int64_t num_slots) {
  return std::min(rows, rows / device::kLoraRows + num_slots);
}

// Maximum number of states that a step keeps in addition to those of its sequences: one after each
// row, and one more after each slice.
int64_t MostKeptStates(const ModelOptions& options) {
  return options.max_rows + options.max_slices;
}

// Number of axes of the positions that steps have, if the model takes images.
int64_t NumAxes(const DecoderSpec& share, const ModelOptions& options) {
  if (options.image_rows == 0 || share.rope_axes.empty()) return 0;
  return *std::ranges::max_element(share.rope_axes) + 1;
}

// Whether tokens of a step may attend to later ones.
bool SeesImages(const DecoderSpec& share, const ModelOptions& options) {
  const bool drafts_blocks = options.drafter != nullptr && options.drafter->drafts_blocks();
  return (options.image_rows > 0 || drafts_blocks) &&
         std::ranges::any_of(share.layers, [](const LayerSpec& layer) {
           return layer.attention.exists() && layer.attention.sees_images;
         });
}

// Maximum number of positions that a row attends to; 0: no indexer chooses positions.
int32_t TopKOf(const AttentionSpec& attention) {
  return attention.latent && attention.latent->indexer ? attention.latent->indexer->top_k : 0;
}

int64_t TableEntries(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

}  // namespace

DeviceStepInputs::AttentionKind DeviceStepInputs::AttentionKind::Of(const AttentionSpec& attention,
                                                                    const ModelOptions& options) {
  const int32_t top_k = TopKOf(attention);
  return {.span = attention.span,
          .sees_images = attention.sees_images,
          .top_k = top_k,
          .limits = {.max_rows = options.max_rows,
                     .max_slices = top_k > 0 ? options.max_rows : options.max_slices,
                     .max_context = top_k > 0 ? std::min<int64_t>(top_k, options.max_context)
                                              : options.max_context,
                     .num_heads = attention.num_heads,
                     .num_kv_heads = attention.num_kv_heads,
                     .head_dim = attention.value_dim()}};
}

bool DeviceStepInputs::AttentionKind::IsOf(const AttentionSpec& attention) const {
  return attention.span == span && attention.sees_images == sees_images &&
         TopKOf(attention) == top_k && attention.num_heads == limits.num_heads &&
         attention.num_kv_heads == limits.num_kv_heads && attention.value_dim() == limits.head_dim;
}

std::vector<DeviceStepInputs::AttentionKind> DeviceStepInputs::KindsOf(
    const DecoderSpec& share, const ModelOptions& options) {
  std::vector<AttentionKind> kinds;
  for (const LayerSpec& layer : share.layers) {
    if (!layer.attention.exists()) continue;
    const bool is_known = std::ranges::any_of(
        kinds, [&](const AttentionKind& kind) { return kind.IsOf(layer.attention); });
    if (!is_known) kinds.push_back(AttentionKind::Of(layer.attention, options));
  }
  return kinds;
}

int DeviceStepInputs::NumLevels(const DecoderSpec& share, const ModelOptions& options,
                                int64_t rows) {
  return device::NumSplitLevels(KindsOf(share, options).front().limits, rows);
}

int64_t DeviceStepInputs::PartialsBytes(const DecoderSpec& share, const ModelOptions& options) {
  int64_t bytes = 0;
  for (const AttentionKind& kind : KindsOf(share, options))
    bytes = std::max(bytes, device::AttentionPartialsBytes(kind.limits));
  return bytes;
}

DrawLimits DeviceStepInputs::DrawLimitsOf(const DecoderSpec& spec, const ModelOptions& options) {
  constexpr int64_t kManyBiases = 1024;
  const int64_t masks = 2 * ((spec.vocab_size + 31) / 32);
  const int64_t biases = std::min(spec.vocab_size, kManyBiases);
  const int64_t counts = std::min(spec.vocab_size, options.max_context);
  const int64_t row = masks + 2 * (biases + counts);
  const int64_t rows = std::min(options.max_logit_rows, options.max_rows);
  return {.words = std::max(row, std::min(rows * row, kMostDrawWords)),
          .top = static_cast<int32_t>(std::min<int64_t>(spec.vocab_size, kernels::kMostTopLogits))};
}

int64_t DeviceStepInputs::MaxBytes(const DecoderSpec& share, const ModelOptions& options,
                                   int64_t num_groups, const RankPlace& place) {
  const int64_t slices = std::min(options.max_slices, options.max_rows);
  int64_t bytes = 0;
  const auto take = [&](int64_t count, size_t element_bytes) {
    bytes += DevicePool::Padded(count * static_cast<int64_t>(element_bytes));
  };
  take(options.max_rows, sizeof(int32_t));  // tokens
  take(options.max_rows, sizeof(int32_t));  // positions
  if (place.tensor_size > 1) {
    take(options.max_rows, sizeof(int32_t));  // places of embeddings
    take(options.max_rows, sizeof(int32_t));  // rows of own tokens
  }
  if (options.drafter != nullptr) take(options.max_rows, sizeof(int32_t));
  const int64_t logit_rows = std::min(options.max_logit_rows, options.max_rows);
  take(logit_rows, sizeof(int32_t));
  take(logit_rows, sizeof(kernels::DrawSettings));
  take(logit_rows, sizeof(int32_t));             // tokens that were drawn
  take(logit_rows, sizeof(kernels::DrawError));  // errors of draws
  const DrawLimits draws = DrawLimitsOf(share, options);
  take(logit_rows, sizeof(kernels::DrawnLogprobs));
  take(logit_rows * draws.top, sizeof(kernels::TopLogit));
  take(logit_rows, sizeof(kernels::DrawExtras));
  take(draws.words, sizeof(uint32_t));
  take(num_groups * options.max_rows, sizeof(int64_t));  // slots
  take(num_groups * slices, sizeof(device::AttentionSliceInfo));
  if (share.KeepsStates()) {
    take(slices, sizeof(device::StateSlice));
    take(MostKeptStates(options), sizeof(device::StateKept));
  }
  take(num_groups * slices * TableEntries(options.max_context, options.block_size),
       sizeof(int32_t));
  take(NumAxes(share, options) * options.max_rows, sizeof(int32_t));
  if (SeesImages(share, options)) take(options.max_rows, sizeof(int32_t));
  if (options.image_rows > 0) {
    take(options.max_rows, sizeof(int32_t));  // rows
    take(options.max_rows, sizeof(int32_t));  // places
  }
  if (options.lora.num_slots > 0) {
    if (place.tensor_size > 1) take(options.max_rows, sizeof(int32_t));  // all tokens
    for (const int64_t rows : {options.max_rows, logit_rows}) {
      take(rows, sizeof(int32_t));  // slots
      take(rows, sizeof(int32_t));
      take(MostTiles(rows, options.lora.num_slots), sizeof(device::LoraTile));
    }
  }
  for (const AttentionKind& kind : KindsOf(share, options)) {
    take(device::MaxAttentionItems(kind.limits), sizeof(device::AttentionItem));
    take(device::MaxAttentionMerges(kind.limits), sizeof(device::AttentionMerge));
    if (kind.top_k == 0) continue;
    take(options.max_rows, sizeof(device::IndexRow));
    take(options.max_rows, sizeof(device::AttentionSliceInfo));
  }
  return bytes;
}

Result<DeviceStepInputs> DeviceStepInputs::Create(Device& device, const DecoderSpec& share,
                                                  const ModelOptions& options, int64_t num_groups,
                                                  std::byte* memory, const RankPlace& place) {
  DeviceStepInputs inputs;
  inputs.block_size_ = options.block_size;
  inputs.max_context_ = options.max_context;
  inputs.keeps_states_ = share.KeepsStates();
  inputs.takes_hidden_ = options.drafter != nullptr;
  inputs.num_axes_ = NumAxes(share, options);
  inputs.sees_images_ = SeesImages(share, options);
  inputs.place_ = place;
  for (int rank = 0; rank < place.tensor_size; ++rank)
    inputs.words_.push_back(CutRows(share.vocab_size, rank, place.tensor_size));
  inputs.embeddings_.resize(inputs.words_.size());
  inputs.num_slots_ = options.lora.num_slots;
  if (inputs.num_slots_ > 0) {
    inputs.row_slots_.reserve(static_cast<size_t>(2 * options.max_rows));
    inputs.begin_of_slot_.resize(static_cast<size_t>(inputs.num_slots_) + 1);
  }
  for (const AttentionKind& kind : KindsOf(share, options))
    inputs.plans_.push_back({.kind = kind, .plan = device::AttentionPlan(kind.limits)});
  ASSIGN_OR_RETURN(inputs.host_, device.AllocatePinned(
                                     kMostInFlight * MaxBytes(share, options, num_groups, place),
                                     "the inputs of a step"));
  inputs.device_memory_ = memory;
  const int64_t most_draws = std::min(options.max_logit_rows, options.max_rows);
  inputs.Take<int32_t>(most_draws, inputs.drawn_tokens_);
  inputs.Take<kernels::DrawError>(most_draws, inputs.drawn_errors_);
  inputs.Take<kernels::DrawnLogprobs>(most_draws, inputs.drawn_logprobs_);
  inputs.Take<kernels::TopLogit>(most_draws * DrawLimitsOf(share, options).top, inputs.drawn_tops_);
  inputs.begin_ = inputs.end_;
  return inputs;
}

template <typename T>
std::span<T> DeviceStepInputs::Take(int64_t count, int64_t& offset) {
  offset = end_;
  end_ += DevicePool::Padded(count * static_cast<int64_t>(sizeof(T)));
  CHECK_LE(end_, host_.size_bytes() / kMostInFlight);
  return {reinterpret_cast<T*>(OnHost() + offset), static_cast<size_t>(count)};
}

void DeviceStepInputs::Send(DeviceStream& stream, const StepInput& input, PaddedStep* padded) {
  buffer_ = (buffer_ + 1) % kMostInFlight;
  end_ = begin_;
  const auto count = static_cast<int64_t>(input.tokens.size());
  num_rows_ = padded != nullptr ? padded->rows : count;
  CHECK_LE(count, num_rows_);
  // Padding rows have token 0, at the last row's position.
  const auto copy = [&](std::span<const int32_t> from, int64_t rows, int32_t more,
                        int64_t& offset) {
    const std::span<int32_t> to = Take<int32_t>(rows, offset);
    std::ranges::fill(std::ranges::copy(from, to.begin()).out, to.end(), more);
  };
  if (place_.tensor_size > 1)
    WriteTokens(input.tokens, padded != nullptr);
  else
    copy(input.tokens, num_rows_, 0, tokens_);
  copy(input.positions, num_rows_, input.positions.back(), positions_);
  if (takes_hidden_) copy(input.hidden_rows, num_rows_, 0, hidden_rows_);
  WriteRopePositions(input);
  WriteSlices(input);
  WriteSeen(input);
  WriteIndexRows();
  WritePlans(padded);
  if (keeps_states_) WriteStates(input, padded != nullptr);
  // Addresses after this point depend on the step.
  WriteTables(input);
  copy(input.logit_rows, std::ssize(input.logit_rows), 0, logit_rows_);
  WriteImages(input);
  WriteAdapters(input);
  if (place_.rank() == 0)
    WriteDraws(input.draws, input.draw_words);
  else
    WriteDraws({}, {});
  stream.CopyToDevice(device_memory_ + begin_, OnHost() + begin_, end_ - begin_);
  TakeDrawn(stream, input.tokens);
}

void DeviceStepInputs::TakeDrawn(DeviceStream& stream, std::span<const int32_t> tokens) const {
  const auto at = [this](int64_t offset, int64_t index) {
    return device_memory_ + offset + index * static_cast<int64_t>(sizeof(int32_t));
  };
  const auto count = static_cast<int64_t>(tokens.size());
  for (int64_t row = 0; row < count;) {
    const int32_t first = tokens[static_cast<size_t>(row)];
    int64_t end = row + 1;
    if (first < 0) {
      CHECK_EQ(place_.tensor_size, 1);
      // Continuing sequences keep their order: consecutive draws go to consecutive rows.
      while (end < count && tokens[static_cast<size_t>(end)] == first - (end - row)) ++end;
      stream.CopyOnDevice(at(tokens_, row), at(drawn_tokens_, -1 - first),
                          (end - row) * static_cast<int64_t>(sizeof(int32_t)));
    }
    row = end;
  }
}

void DeviceStepInputs::WriteTokens(std::span<const int32_t> tokens, bool is_padded) {
  const auto rank_of = [&](int32_t token) {
    size_t rank = 0;
    while (token >= words_[rank].end) ++rank;
    return rank;
  };
  // Padding rows have token 0.
  const auto count = static_cast<size_t>(num_rows_);
  const auto token_at = [&](size_t i) { return i < tokens.size() ? tokens[i] : 0; };
  std::fill(embeddings_.begin(), embeddings_.end(), 0);
  for (size_t i = 0; i < count; ++i) ++embeddings_[rank_of(token_at(i))];
  const auto own_rank = static_cast<size_t>(place_.tensor_rank);
  num_own_tokens_ = is_padded ? num_rows_ : embeddings_[own_rank];
  const std::span<int32_t> own = Take<int32_t>(num_own_tokens_, tokens_);
  const std::span<int32_t> places = Take<int32_t>(num_rows_, embedding_places_);
  const std::span<int32_t> own_rows = Take<int32_t>(num_own_tokens_, own_token_rows_);
  std::ranges::fill(own, 0);
  std::ranges::fill(own_rows, -1);
  size_t num_own = 0;
  for (size_t rank = 0, first = 0; rank < words_.size();
       first += static_cast<size_t>(embeddings_[rank++])) {
    auto next = static_cast<int32_t>(first);
    for (size_t i = 0; i < count; ++i) {
      if (rank_of(token_at(i)) != rank) continue;
      places[i] = next++;
      if (rank != own_rank) continue;
      own[num_own] = token_at(i) - static_cast<int32_t>(words_[rank].begin);
      own_rows[num_own++] = static_cast<int32_t>(i);
    }
  }
}

void DeviceStepInputs::WriteDraws(std::span<const TokenDraw> draws,
                                  std::span<const uint32_t> words) {
  num_draws_ = static_cast<int64_t>(draws.size());
  const auto settings = Take<kernels::DrawSettings>(num_draws_, settings_);
  // The kernel draws a token for every row. For rows whose logits are returned instead, that token
  // is ignored.
  kernels::DrawSettings largest = {};
  largest.top_p = 1;
  std::ranges::transform(draws, settings.begin(), [&](const TokenDraw& draw) {
    return draw.is_wanted ? draw.settings : largest;
  });
  most_top_ = 0;
  has_extras_ = tells_logprobs_ = false;
  for (const TokenDraw& draw : draws) {
    if (!draw.is_wanted) continue;
    const bool tells = draw.extras.logprobs != kernels::LogprobsOf::kNone;
    tells_logprobs_ = tells_logprobs_ || tells;
    has_extras_ = has_extras_ || tells || draw.extras.is_changed != 0;
    most_top_ = std::max<int64_t>(most_top_, draw.extras.num_top);
  }
  if (!has_extras_) return;
  const auto extras = Take<kernels::DrawExtras>(num_draws_, extras_);
  std::ranges::transform(draws, extras.begin(), [](const TokenDraw& draw) {
    return draw.is_wanted ? draw.extras : kernels::DrawExtras();
  });
  std::ranges::copy(words, Take<uint32_t>(std::ssize(words), draw_words_).begin());
}

device::SampleRowsArgs DeviceStepInputs::Draws() const {
  device::SampleRowsArgs args = {};
  args.rows = num_draws_;
  args.settings = OnDevice<kernels::DrawSettings>(settings_);
  args.tokens = reinterpret_cast<int32_t*>(device_memory_ + drawn_tokens_);
  args.errors = reinterpret_cast<kernels::DrawError*>(device_memory_ + drawn_errors_);
  if (!has_extras_) return args;
  args.extras = OnDevice<kernels::DrawExtras>(extras_);
  args.words = reinterpret_cast<uint32_t*>(device_memory_ + draw_words_);
  args.logprobs = reinterpret_cast<kernels::DrawnLogprobs*>(device_memory_ + drawn_logprobs_);
  args.tops = reinterpret_cast<kernels::TopLogit*>(device_memory_ + drawn_tops_);
  args.most_top = most_top_;
  return args;
}

void DeviceStepInputs::ReceiveDraws(DeviceStream& stream) {
  const auto copy = [&](int64_t offset, int64_t count, size_t element_bytes) {
    stream.CopyToHost(OnHost() + offset, device_memory_ + offset,
                      count * static_cast<int64_t>(element_bytes));
  };
  copy(drawn_tokens_, num_draws_, sizeof(int32_t));
  copy(drawn_errors_, num_draws_, sizeof(kernels::DrawError));
  if (tells_logprobs_) copy(drawn_logprobs_, num_draws_, sizeof(kernels::DrawnLogprobs));
  if (most_top_ > 0) copy(drawn_tops_, num_draws_ * most_top_, sizeof(kernels::TopLogit));
}

void DeviceStepInputs::ReadDraws(int buffer, std::span<TokenDraw> draws) const {
  const std::byte* const host = OnHost(buffer);
  const auto* tokens = reinterpret_cast<const int32_t*>(host + drawn_tokens_);
  const auto* errors = reinterpret_cast<const kernels::DrawError*>(host + drawn_errors_);
  const auto* logprobs = reinterpret_cast<const kernels::DrawnLogprobs*>(host + drawn_logprobs_);
  const auto* tops = reinterpret_cast<const kernels::TopLogit*>(host + drawn_tops_);
  int64_t most_top = 0;  // maximum over the rows of the step
  for (const TokenDraw& draw : draws) {
    if (draw.is_wanted) most_top = std::max<int64_t>(most_top, draw.extras.num_top);
  }
  for (size_t i = 0; i < draws.size(); ++i) {
    draws[i].token = tokens[i];
    draws[i].error = errors[i];
    if (draws[i].extras.logprobs == kernels::LogprobsOf::kNone) continue;
    draws[i].logprobs = logprobs[i];
    std::copy_n(tops + static_cast<int64_t>(i) * most_top, draws[i].extras.num_top,
                draws[i].top.begin());
  }
}

// Writes slots, and each group's slices; a group's tables follow those of the previous group.
void DeviceStepInputs::WriteSlices(const StepInput& input) {
  const auto first = input.SlicesOf(0);
  const auto own_rows = static_cast<int64_t>(input.tokens.size());
  num_padding_ = num_rows_ - own_rows;
  num_slices_ = std::ssize(first) + num_padding_;
  table_entries_ = 0;
  for (const kernels::AttentionSlice& slice : first)
    table_entries_ += TableEntries(slice.context + slice.num_tokens, block_size_);
  const auto slots = Take<int64_t>(input.num_groups * num_rows_, slots_);
  const auto slices = Take<device::AttentionSliceInfo>(input.num_groups * num_slices_, slices_);
  int64_t table = 0;
  for (int64_t group = 0; group < input.num_groups; ++group) {
    int64_t* slot = slots.data() + group * num_rows_;
    device::AttentionSliceInfo* info = slices.data() + group * num_slices_;
    for (const kernels::AttentionSlice& slice : input.SlicesOf(group)) {
      *info++ = {.first_row = static_cast<int32_t>(slice.first_row),
                 .num_tokens = slice.num_tokens,
                 .context = slice.context,
                 .table = static_cast<int32_t>(table)};
      const int32_t end = slice.context + slice.num_tokens;
      table += TableEntries(end, block_size_);
      for (int32_t position = slice.context; position < end; ++position) {
        *slot++ = int64_t{slice.block_table[position / block_size_]} * block_size_ +
                  position % block_size_;
      }
    }
    for (int64_t row = own_rows; row < num_rows_; ++row) {
      *info = *(info - 1);
      info->first_row = static_cast<int32_t>(row);
      ++info;
      *slot++ = -1;
    }
  }
}

// Padding rows have the last row's positions.
void DeviceStepInputs::WriteRopePositions(const StepInput& input) {
  if (num_axes_ == 0) return;
  const size_t rows = input.tokens.size();
  int32_t* to = Take<int32_t>(num_axes_ * num_rows_, rope_positions_).data();
  for (int64_t axis = 0; axis < num_axes_; ++axis) {
    const std::span<const int32_t> from =
        input.rope_positions.empty()
            ? input.positions
            : input.rope_positions.subspan(static_cast<size_t>(axis) * rows, rows);
    to = std::ranges::copy(from, to).out;
    to = std::fill_n(to, num_rows_ - static_cast<int64_t>(rows), from.back());
  }
}

void DeviceStepInputs::WriteImages(const StepInput& input) {
  num_image_rows_ = std::ssize(input.image_rows);
  if (num_image_rows_ == 0) return;
  const auto rows = Take<int32_t>(num_image_rows_, image_rows_);
  const auto places = Take<int32_t>(num_image_rows_, image_places_);
  std::ranges::transform(input.image_rows, rows.begin(), &ImageRow::row);
  std::ranges::transform(input.image_rows, places.begin(), &ImageRow::place);
}

void DeviceStepInputs::WriteSeen(const StepInput& input) {
  const auto slices = input.SlicesOf(0);
  has_seen_ =
      sees_images_ && std::ranges::any_of(slices, [](const auto& slice) {
        return std::any_of(slice.spans, slice.spans + slice.num_spans, [&](const auto& span) {
          return span.end > slice.context && span.begin < slice.context + slice.num_tokens;
        });
      });
  if (!has_seen_) return;
  CHECK_EQ(num_padding_, 0);
  int32_t* const seen = Take<int32_t>(num_rows_, last_seen_).data();
  std::ranges::copy(input.positions, seen);
  for (const kernels::AttentionSlice& slice : slices) {
    const int32_t end = slice.context + slice.num_tokens;
    for (int32_t i = 0; i < slice.num_spans; ++i) {
      const kernels::SeenSpan& span = slice.spans[i];
      const int32_t first = std::max(span.begin, slice.context);
      if (first >= end || span.end <= first) continue;
      CHECK_LE(span.end, end);
      int32_t* const rows = seen + slice.first_row - slice.context;
      std::fill(rows + first, rows + span.end, span.end - 1);
    }
  }
}

// Padding rows choose the same positions as the last row.
void DeviceStepInputs::WriteIndexRows() {
  const std::span slices(reinterpret_cast<const device::AttentionSliceInfo*>(OnHost() + slices_),
                         static_cast<size_t>(num_slices_));
  for (KindPlan& mine : plans_) {
    const int32_t top_k = mine.kind.top_k;
    if (top_k == 0) continue;
    device::IndexRow* row = Take<device::IndexRow>(num_rows_, index_rows_).data();
    device::AttentionSliceInfo* own =
        Take<device::AttentionSliceInfo>(num_rows_, mine.slices).data();
    int32_t index = 0;
    for (const device::AttentionSliceInfo& slice : slices) {
      for (int32_t i = 0; i < slice.num_tokens; ++i, ++index) {
        const int32_t position = slice.context + i;
        *row++ = {position, slice.table};
        *own++ = {.first_row = index,
                  .num_tokens = 1,
                  .context = std::min(position, top_k - 1),
                  .table = index * top_k};
      }
    }
  }
}

// Writes the work items of every AttentionKind.
void DeviceStepInputs::WritePlans(PaddedStep* padded) {
  const auto slices_of = [&](const KindPlan& mine) {
    const bool is_of_rows = mine.kind.top_k > 0;
    return std::span(reinterpret_cast<const device::AttentionSliceInfo*>(
                         OnHost() + (is_of_rows ? mine.slices : slices_)),
                     static_cast<size_t>(is_of_rows ? num_rows_ : num_slices_));
  };
  for (KindPlan& mine : plans_) {
    const device::AttentionLimits& limits = mine.kind.limits;
    const std::span slices = slices_of(mine);
    const int64_t own_slices = std::ssize(slices) - num_padding_;
    std::span<const int32_t> seen;
    if (has_seen_ && mine.kind.sees_images) {
      seen = {reinterpret_cast<const int32_t*>(OnHost() + last_seen_),
              static_cast<size_t>(num_rows_)};
    }
    device::PlanAttention(limits, slices.first(static_cast<size_t>(own_slices)), mine.kind.span,
                          mine.plan, /*ahead=*/0, seen);
    if (padded == nullptr) continue;
    while (device::CountsOfLevel(limits, num_slices_, padded->level).partial_tokens <
           mine.plan.num_partial_tokens) {
      ++padded->level;
    }
  }
  for (KindPlan& mine : plans_) {
    std::vector<device::AttentionItem>& items = mine.plan.items;
    const std::vector<device::AttentionMerge>& merges = mine.plan.merges;
    if (padded != nullptr) {
      // Padding rows attend only to the last position of the last sequence.
      const std::span slices = slices_of(mine);
      for (int64_t slice = num_slices_ - num_padding_; slice < num_slices_; ++slice) {
        const int32_t context = slices[static_cast<size_t>(slice)].context;
        items.push_back({static_cast<int32_t>(slice), 0, 1, context, context + 1, /*partial=*/-1});
      }
      device::PadPlan(device::CountsOfLevel(mine.kind.limits, num_slices_, padded->level),
                      mine.plan);
    }
    std::ranges::copy(items, Take<device::AttentionItem>(std::ssize(items), mine.items).begin());
    std::ranges::copy(merges,
                      Take<device::AttentionMerge>(std::ssize(merges), mine.merges).begin());
  }
}

// Writes the state slot and the snapshots of each slice. A padded step has room for one snapshot
// per slice.
void DeviceStepInputs::WriteStates(const StepInput& input, bool is_padded) {
  const auto states = Take<device::StateSlice>(num_slices_, states_);
  const auto count = std::ssize(input.state_snapshots);
  const auto kept =
      Take<device::StateKept>(is_padded ? std::max(num_slices_, count) : count, kept_);
  const auto slices = input.SlicesOf(0);
  int32_t next = 0;
  for (size_t i = 0; i < states.size(); ++i) {
    if (i >= slices.size()) {  // a padding slice
      states[i] = {.first_row = static_cast<int32_t>(i),
                   .num_tokens = 1,
                   .slot = -1,
                   .first_kept = 0,
                   .num_kept = 0};
      continue;
    }
    device::StateSlice& state = states[i];
    state = {.first_row = static_cast<int32_t>(slices[i].first_row),
             .num_tokens = slices[i].num_tokens,
             .slot = input.states[i].slot,
             .first_kept = next,
             .num_kept = 0};
    for (const StateSnapshot& snapshot : input.state_snapshots) {
      if (snapshot.slice != static_cast<int32_t>(i)) continue;
      kept[static_cast<size_t>(next++)] = {snapshot.rows, snapshot.slot};
    }
    state.num_kept = next - state.first_kept;
    std::ranges::sort(
        kept.subspan(static_cast<size_t>(state.first_kept), static_cast<size_t>(state.num_kept)),
        {}, &device::StateKept::rows);
  }
}

// Writes the block tables of all groups.
void DeviceStepInputs::WriteTables(const StepInput& input) {
  int32_t* table = Take<int32_t>(input.num_groups * table_entries_, tables_).data();
  for (const kernels::AttentionSlice& slice : input.slices) {
    table = std::copy_n(slice.block_table,
                        TableEntries(slice.context + slice.num_tokens, block_size_), table);
  }
}

void DeviceStepInputs::WriteAdapters(const StepInput& input) {
  has_adapters_ = std::ranges::any_of(input.adapters, [](int32_t slot) { return slot >= 0; });
  if (!has_adapters_) return;
  all_tokens_ = tokens_;
  if (place_.tensor_size > 1)
    std::ranges::copy(input.tokens, Take<int32_t>(num_rows_, all_tokens_).begin());
  const std::span<const kernels::AttentionSlice> slices = input.SlicesOf(0);
  CHECK_EQ(slices.size(), input.adapters.size());
  row_slots_.clear();
  for (size_t i = 0; i < slices.size(); ++i) {
    CHECK_LT(input.adapters[i], num_slots_);
    row_slots_.insert(row_slots_.end(), static_cast<size_t>(slices[i].num_tokens),
                      input.adapters[i]);
  }
  for (const int32_t row : input.logit_rows)
    row_slots_.push_back(row_slots_[static_cast<size_t>(row)]);
  const std::span<const int32_t> slots = row_slots_;
  WriteAdapterRows(slots.first(static_cast<size_t>(num_rows_)), adapters_);
  WriteAdapterRows(slots.subspan(static_cast<size_t>(num_rows_)), logit_adapters_);
}

void DeviceStepInputs::WriteAdapterRows(std::span<const int32_t> slots, AdapterRows& to) {
  std::ranges::copy(slots, Take<int32_t>(std::ssize(slots), to.slots).begin());
  std::fill(begin_of_slot_.begin(), begin_of_slot_.end(), 0);
  for (const int32_t slot : slots) {
    if (slot >= 0) ++begin_of_slot_[static_cast<size_t>(slot) + 1];
  }
  int32_t num_tiles = 0;
  for (size_t slot = 0; slot + 1 < begin_of_slot_.size(); ++slot) {
    num_tiles += (begin_of_slot_[slot + 1] + device::kLoraRows - 1) / device::kLoraRows;
    begin_of_slot_[slot + 1] += begin_of_slot_[slot];
  }
  const auto rows = Take<int32_t>(begin_of_slot_.back(), to.rows);
  const auto tiles = Take<device::LoraTile>(num_tiles, to.tiles);
  to.num_tiles = num_tiles;
  auto tile = tiles.begin();
  for (int32_t slot = 0; slot < num_slots_; ++slot) {
    const int32_t end = begin_of_slot_[static_cast<size_t>(slot) + 1];
    for (int32_t first = begin_of_slot_[static_cast<size_t>(slot)]; first < end;
         first += device::kLoraRows) {
      *tile++ = {.slot = slot, .first = first, .count = std::min(device::kLoraRows, end - first)};
    }
  }
  for (size_t row = 0; row < slots.size(); ++row) {
    if (slots[row] < 0) continue;
    const auto place = static_cast<size_t>(begin_of_slot_[static_cast<size_t>(slots[row])]++);
    rows[place] = static_cast<int32_t>(row);
  }
}

device::AddLoraArgs DeviceStepInputs::Adapters(bool of_logit_rows) const {
  CHECK(has_adapters_);
  const AdapterRows& from = of_logit_rows ? logit_adapters_ : adapters_;
  device::AddLoraArgs args = {};
  args.num_tiles = from.num_tiles;
  args.tiles = OnDevice<device::LoraTile>(from.tiles);
  args.rows = OnDevice<int32_t>(from.rows);
  args.slots = OnDevice<int32_t>(from.slots);
  return args;
}

device::AttentionArgs DeviceStepInputs::Attention(const program::Attend& /*op*/,
                                                  const AttentionSpec& attention,
                                                  int64_t group) const {
  const auto found =
      std::ranges::find_if(plans_, [&](const KindPlan& plan) { return plan.kind.IsOf(attention); });
  CHECK(found != plans_.end());
  device::AttentionArgs args = {};
  args.chunk = attention.span.chunk;
  args.window = attention.span.window;
  args.items = OnDevice<device::AttentionItem>(found->items);
  args.num_items = static_cast<int>(found->plan.items.size());
  args.num_wide_items = found->plan.num_wide_items;
  args.merges = OnDevice<device::AttentionMerge>(found->merges);
  args.num_merges = static_cast<int>(found->plan.merges.size());
  args.slices = found->kind.top_k > 0
                    ? OnDevice<device::AttentionSliceInfo>(found->slices)
                    : OnDevice<device::AttentionSliceInfo>(slices_) + group * num_slices_;
  args.tables = OnDevice<int32_t>(tables_);
  if (has_seen_ && attention.sees_images) args.last_seen = OnDevice<int32_t>(last_seen_);
  return args;
}

}  // namespace sluice
