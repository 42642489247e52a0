#include "models/step_message.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice {

namespace {

// Numbers are written in groups of seven bits, lowest first; all bytes except the last have the top
// bit set.
constexpr int kMostNumberBytes = 5;
constexpr int64_t kNoBlockId = -1;  // table entry for positions that no later token attends to

}  // namespace

class StepDecoder::NumberReader {
 public:
  explicit NumberReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Returns the next number; kInvalidData if it exceeds `most`.
  Result<int64_t> Next(const char* what, int64_t most) {
    uint64_t number = 0;
    for (int i = 0; i < kMostNumberBytes; ++i) {
      if (place_ == bytes_.size()) return Wrong(fmt::format("expected {}, found the end", what));
      const auto byte = static_cast<uint64_t>(bytes_[place_++]);
      number |= (byte & 0x7F) << (7 * i);
      if ((byte & 0x80) != 0) continue;
      if (number > static_cast<uint64_t>(most))
        return Wrong(fmt::format("{}: expected at most {}, found {}", what, most, number));
      return static_cast<int64_t>(number);
    }
    return Wrong(fmt::format("{}: a number that does not end", what));
  }
  Status Floats(const char* what, std::span<float> to) {
    if (bytes_.size() - place_ < to.size_bytes())
      return Wrong(fmt::format("expected {}, found the end", what));
    std::memcpy(to.data(), bytes_.data() + place_, to.size_bytes());
    place_ += to.size_bytes();
    return {};
  }
  bool is_at_end() const { return place_ == bytes_.size(); }
  tl::unexpected<Error> Wrong(const std::string& problem) const {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("the message of a step, byte {}: {}", place_, problem));
  }

 private:
  std::span<const std::byte> bytes_;
  size_t place_ = 0;
};

namespace {

void Put(std::vector<std::byte>& message, int64_t number) {
  auto rest = static_cast<uint64_t>(number);
  for (; rest >= 0x80; rest >>= 7) message.push_back(static_cast<std::byte>(0x80 | (rest & 0x7F)));
  message.push_back(static_cast<std::byte>(rest));
}

int64_t BlocksOf(const kernels::AttentionSlice& slice, int64_t block_size) {
  return (int64_t{slice.context} + slice.num_tokens + block_size - 1) / block_size;
}

}  // namespace

int64_t StepLimits::max_bytes() const {
  const int64_t numbers = 7 + max_slices * 5 + max_tables() * (3 + max_blocks()) + max_rows +
                          max_logit_rows + num_states * 5;
  if (image_rows == 0) return numbers * kMostNumberBytes;
  // Maximum number of other values: spans, rows of the step, positions on axes, stored rows.
  const int64_t more = 4 + max_slices + max_rows * (2 + 2 + num_axes) + image_rows;
  return (numbers + more) * kMostNumberBytes +
         image_rows * image_row_width * static_cast<int64_t>(sizeof(float));
}

SentTables::SentTables(const StepLimits& limits)
    : max_blocks_(limits.max_blocks()),
      entries_(static_cast<size_t>(limits.max_tables() * max_blocks_)),
      sizes_(static_cast<size_t>(limits.max_tables())) {}

StepEncoder::StepEncoder(const StepLimits& limits)
    : limits_(limits),
      sent_(limits),
      memory_(static_cast<size_t>(limits.max_tables())),
      used_(static_cast<size_t>(limits.max_tables())) {}

// Sequences keep their order between steps, except for those that end. So the number after the
// previous slice's number is the most likely one.
int64_t StepEncoder::NumberOf(const int32_t* memory, int64_t guess) {
  const int64_t count = limits_.max_tables();
  int64_t oldest = -1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = guess + i < count ? guess + i : guess + i - count;
    const auto place = static_cast<size_t>(number);
    if (memory_[place] == memory && used_[place] != step_) {
      used_[place] = step_;
      return number;
    }
    if (oldest < 0 || used_[place] < used_[static_cast<size_t>(oldest)]) oldest = number;
  }
  const auto place = static_cast<size_t>(oldest);
  CHECK(used_[place] != step_, "more than {} block tables in a step", count);
  memory_[place] = memory;
  used_[place] = step_;
  return oldest;
}

void StepEncoder::PutTable(const kernels::AttentionSlice& slice, int64_t number) {
  const int64_t size = BlocksOf(slice, limits_.block_size);
  CHECK_LE(size, limits_.max_blocks());
  const std::span<const int32_t> table(slice.block_table, static_cast<size_t>(size));
  const std::span<int32_t> before = sent_.table(number);
  const int64_t common = std::min(size, sent_.size(number));
  const auto differs = std::mismatch(table.begin(), table.begin() + common, before.begin()).first;
  const int64_t kept = differs - table.begin();
  Put(message_, number);
  Put(message_, kept);
  for (int64_t i = kept; i < size; ++i) {
    const int32_t block = table[static_cast<size_t>(i)];
    before[static_cast<size_t>(i)] = block;
    Put(message_, int64_t{block} - kNoBlockId);
  }
  sent_.size(number) = size;
}

void StepEncoder::PutStates(const StepInput& input) {
  Put(message_, input.states.empty() ? 0 : 1);
  if (input.states.empty()) return;
  CHECK_EQ(input.states.size(), input.SlicesOf(0).size());
  CHECK_LE(std::ssize(input.state_copies), limits_.num_states);
  CHECK_LE(std::ssize(input.state_snapshots), limits_.num_states);
  for (const StateSlot& state : input.states) {
    Put(message_, state.slot);
    Put(message_, state.is_new ? 1 : 0);
  }
  Put(message_, std::ssize(input.state_copies));
  for (const StateCopy& copy : input.state_copies) {
    Put(message_, copy.from);
    Put(message_, copy.to);
  }
  Put(message_, std::ssize(input.state_snapshots));
  for (const StateSnapshot& snapshot : input.state_snapshots) {
    Put(message_, snapshot.slice);
    Put(message_, snapshot.rows);
    Put(message_, snapshot.slot);
  }
}

void StepEncoder::PutImages(const StepInput& input) {
  const auto is_seen = [](const kernels::AttentionSlice& slice, const kernels::SeenSpan& span) {
    return span.end > slice.context && span.begin < slice.context + slice.num_tokens;
  };
  bool has_spans = false;
  for (const kernels::AttentionSlice& slice : input.SlicesOf(0)) {
    for (int32_t i = 0; i < slice.num_spans; ++i)
      has_spans = has_spans || is_seen(slice, slice.spans[i]);
  }
  const bool has_images = has_spans || !input.image_rows.empty() ||
                          !input.stored_image_rows.empty() || !input.rope_positions.empty();
  Put(message_, has_images ? 1 : 0);
  if (!has_images) return;
  // Sends only the spans that contain the slices' own tokens.
  for (const kernels::AttentionSlice& slice : input.SlicesOf(0)) {
    const std::span<const kernels::SeenSpan> spans(slice.spans,
                                                   static_cast<size_t>(slice.num_spans));
    const auto seen = [&](const kernels::SeenSpan& span) { return is_seen(slice, span); };
    Put(message_, std::ranges::count_if(spans, seen));
    for (const kernels::SeenSpan& span : spans) {
      if (!seen(span)) continue;
      Put(message_, span.begin);
      Put(message_, span.end);
    }
  }
  CHECK_LE(std::ssize(input.stored_image_rows), limits_.image_rows);
  Put(message_, std::ssize(input.stored_image_rows));
  for (const StoredImageRow& stored : input.stored_image_rows) {
    Put(message_, stored.place);
    const auto values =
        std::as_bytes(std::span(stored.values, static_cast<size_t>(limits_.image_row_width)));
    message_.insert(message_.end(), values.begin(), values.end());
  }
  Put(message_, std::ssize(input.image_rows));
  int32_t last = -1;
  for (const ImageRow& image : input.image_rows) {
    Put(message_, image.row - std::exchange(last, image.row) - 1);
    Put(message_, image.place);
  }
  Put(message_, input.rope_positions.empty() ? 0 : 1);
  CHECK(input.rope_positions.empty() ||
        input.rope_positions.size() == input.tokens.size() * static_cast<size_t>(limits_.num_axes));
  for (const int32_t position : input.rope_positions) Put(message_, position);
}

std::span<const std::byte> StepEncoder::Encode(const StepInput& input) {
  CHECK(limits_.image_rows > 0 || (input.image_rows.empty() && input.rope_positions.empty()),
        "a step with images beyond the limits");
  CHECK(input.draws.empty(), "tokens are drawn from whole rows of logits");
  CHECK_EQ(input.num_groups, limits_.num_groups);
  message_.clear();
  ++step_;
  const std::span<const kernels::AttentionSlice> slices = input.SlicesOf(0);
  Put(message_, static_cast<int64_t>(input.tokens.size()));
  Put(message_, static_cast<int64_t>(slices.size()));
  Put(message_, static_cast<int64_t>(input.logit_rows.size()));
  for (const kernels::AttentionSlice& slice : slices) {
    Put(message_, slice.num_tokens);
    Put(message_, slice.context);
    CHECK(slice.num_tokens == 0 ||
              input.positions[static_cast<size_t>(slice.first_row)] == slice.context,
          "positions that do not follow the context");
  }
  if (limits_.num_adapters > 0) {
    Put(message_, input.adapters.empty() ? 0 : 1);
    for (const int32_t slot : input.adapters) Put(message_, slot + 1);
  }
  if (limits_.num_states > 0) PutStates(input);
  if (limits_.image_rows > 0) PutImages(input);
  int64_t guess = 0;
  for (const kernels::AttentionSlice& slice : input.slices) {
    const int64_t number = NumberOf(slice.block_table, guess);
    PutTable(slice, number);
    guess = number + 1 < limits_.max_tables() ? number + 1 : 0;
  }
  for (const int32_t token : input.tokens) Put(message_, token);
  int32_t last = -1;
  for (const int32_t row : input.logit_rows) Put(message_, row - std::exchange(last, row) - 1);
  return message_;
}

StepDecoder::StepDecoder(const StepLimits& limits)
    : limits_(limits), sent_(limits), seen_(static_cast<size_t>(limits.max_tables())) {
  tokens_.reserve(static_cast<size_t>(limits.max_rows));
  positions_.reserve(static_cast<size_t>(limits.max_rows));
  logit_rows_.reserve(static_cast<size_t>(limits.max_logit_rows));
  adapters_.reserve(static_cast<size_t>(limits.num_adapters > 0 ? limits.max_slices : 0));
  slices_.reserve(static_cast<size_t>(limits.max_tables()));
  if (limits.num_states > 0) states_.reserve(static_cast<size_t>(limits.max_slices));
  state_copies_.reserve(static_cast<size_t>(limits.num_states));
  state_snapshots_.reserve(static_cast<size_t>(limits.num_states));
  if (limits.image_rows == 0) return;
  image_values_.resize(static_cast<size_t>(limits.image_rows * limits.image_row_width));
  stored_image_rows_.reserve(static_cast<size_t>(limits.image_rows));
  image_rows_.reserve(static_cast<size_t>(limits.max_rows));
  rope_positions_.reserve(static_cast<size_t>(limits.max_rows * limits.num_axes));
}

Status StepDecoder::TakeStates(NumberReader& reader, int64_t num_slices) {
  ASSIGN_OR_RETURN(const int64_t has_states, reader.Next("whether states follow", 1));
  if (has_states == 0) return {};
  const int64_t last = limits_.num_states - 1;
  const auto next = [&](const char* what, int64_t most, int32_t& number) -> Status {
    ASSIGN_OR_RETURN(const int64_t found, reader.Next(what, most));
    number = static_cast<int32_t>(found);
    return {};
  };
  for (int64_t i = 0; i < num_slices; ++i) {
    StateSlot& state = states_.emplace_back();
    RETURN_IF_ERROR(next("the slot of a state", last, state.slot));
    ASSIGN_OR_RETURN(const int64_t is_new, reader.Next("whether a state is new", 1));
    state.is_new = is_new != 0;
  }
  ASSIGN_OR_RETURN(const int64_t num_copies, reader.Next("copies of states", limits_.num_states));
  for (int64_t i = 0; i < num_copies; ++i) {
    StateCopy& copy = state_copies_.emplace_back();
    RETURN_IF_ERROR(next("the slot that is copied", last, copy.from));
    RETURN_IF_ERROR(next("the destination slot of a copy", last, copy.to));
  }
  ASSIGN_OR_RETURN(const int64_t num_snapshots,
                   reader.Next("snapshots of states", num_slices > 0 ? limits_.num_states : 0));
  for (int64_t i = 0; i < num_snapshots; ++i) {
    StateSnapshot& snapshot = state_snapshots_.emplace_back();
    RETURN_IF_ERROR(next("the slice of a snapshot", num_slices - 1, snapshot.slice));
    RETURN_IF_ERROR(next("the rows of a snapshot",
                         slices_[static_cast<size_t>(snapshot.slice)].num_tokens, snapshot.rows));
    RETURN_IF_ERROR(next("the slot of a snapshot", last, snapshot.slot));
    if (snapshot.rows == 0) return reader.Wrong("a snapshot after no rows");
  }
  return {};
}

Status StepDecoder::TakeSpans(NumberReader& reader) {
  for (kernels::AttentionSlice& slice : slices_) {
    const int32_t end = slice.context + slice.num_tokens;
    ASSIGN_OR_RETURN(const int64_t count, reader.Next("spans of a slice", slice.num_tokens));
    slice.num_spans = static_cast<int32_t>(count);
    int32_t last = 0;
    for (int64_t i = 0; i < count; ++i) {
      kernels::SeenSpan& span = spans_.emplace_back();
      ASSIGN_OR_RETURN(const int64_t first, reader.Next("where a span begins", end - 1));
      ASSIGN_OR_RETURN(const int64_t behind, reader.Next("where a span ends", end));
      span = {static_cast<int32_t>(first), static_cast<int32_t>(behind)};
      if (span.begin < last || span.end <= std::max(span.begin, slice.context))
        return reader.Wrong(fmt::format("a span from {} to {}", first, behind));
      last = span.end;
    }
  }
  size_t first = 0;
  for (kernels::AttentionSlice& slice : slices_) {
    slice.spans = spans_.data() + first;
    first += static_cast<size_t>(slice.num_spans);
  }
  return {};
}

Status StepDecoder::TakeImages(NumberReader& reader, int64_t num_rows) {
  ASSIGN_OR_RETURN(const int64_t has_images, reader.Next("whether images follow", 1));
  if (has_images == 0) return {};
  RETURN_IF_ERROR(TakeSpans(reader));
  const auto values_at = [this](int64_t place) {
    return image_values_.data() + place * limits_.image_row_width;
  };
  ASSIGN_OR_RETURN(const int64_t num_stored,
                   reader.Next("stored rows of images", limits_.image_rows));
  for (int64_t i = 0; i < num_stored; ++i) {
    ASSIGN_OR_RETURN(const int64_t place,
                     reader.Next("the place of a stored row", limits_.image_rows - 1));
    RETURN_IF_ERROR(
        reader.Floats("a row of an image",
                      std::span(values_at(place), static_cast<size_t>(limits_.image_row_width))));
    stored_image_rows_.push_back({static_cast<int32_t>(place), values_at(place)});
  }
  ASSIGN_OR_RETURN(const int64_t num_images, reader.Next("rows of images", num_rows));
  int64_t next = 0;
  for (int64_t i = 0; i < num_images; ++i) {
    ASSIGN_OR_RETURN(const int64_t skipped,
                     reader.Next("the row of an image's row", num_rows - 1 - next));
    ASSIGN_OR_RETURN(const int64_t place,
                     reader.Next("the place of an image's row", limits_.image_rows - 1));
    image_rows_.push_back(
        {static_cast<int32_t>(next + skipped), values_at(place), static_cast<int32_t>(place)});
    next += skipped + 1;
  }
  ASSIGN_OR_RETURN(const int64_t has_axes,
                   reader.Next("whether positions on axes follow", limits_.num_axes > 0 ? 1 : 0));
  for (int64_t i = 0; i < has_axes * num_rows * limits_.num_axes; ++i) {
    ASSIGN_OR_RETURN(const int64_t position,
                     reader.Next("a position on an axis", limits_.max_context - 1));
    rope_positions_.push_back(static_cast<int32_t>(position));
  }
  return {};
}

Result<const StepInput*> StepDecoder::Decode(std::span<const std::byte> message) {
  NumberReader reader(message);
  stored_image_rows_.clear();
  image_rows_.clear();
  rope_positions_.clear();
  spans_.clear();
  tokens_.clear();
  positions_.clear();
  logit_rows_.clear();
  adapters_.clear();
  slices_.clear();
  states_.clear();
  state_copies_.clear();
  state_snapshots_.clear();
  std::fill(seen_.begin(), seen_.end(), uint8_t{0});
  ASSIGN_OR_RETURN(const int64_t num_rows, reader.Next("rows", limits_.max_rows));
  ASSIGN_OR_RETURN(const int64_t num_slices, reader.Next("slices", limits_.max_slices));
  ASSIGN_OR_RETURN(const int64_t num_logits, reader.Next("logit rows", limits_.max_logit_rows));
  for (int64_t i = 0; i < num_slices; ++i) {
    const auto first_row = static_cast<int64_t>(positions_.size());
    ASSIGN_OR_RETURN(const int64_t num_tokens,
                     reader.Next("tokens of a slice", num_rows - first_row));
    ASSIGN_OR_RETURN(const int64_t context,
                     reader.Next("context of a slice", limits_.max_context - num_tokens));
    for (int64_t token = 0; token < num_tokens; ++token)
      positions_.push_back(static_cast<int32_t>(context + token));
    slices_.push_back(
        {first_row, static_cast<int32_t>(num_tokens), static_cast<int32_t>(context), nullptr});
  }
  if (static_cast<int64_t>(positions_.size()) != num_rows)
    return reader.Wrong(
        fmt::format("expected {} rows in slices, found {}", num_rows, positions_.size()));
  if (limits_.num_adapters > 0) {
    ASSIGN_OR_RETURN(const int64_t has_adapters, reader.Next("whether adapters follow", 1));
    for (int64_t i = 0; i < has_adapters * num_slices; ++i) {
      ASSIGN_OR_RETURN(const int64_t slot, reader.Next("an adapter's slot", limits_.num_adapters));
      adapters_.push_back(static_cast<int32_t>(slot - 1));
    }
  }
  if (limits_.num_states > 0) RETURN_IF_ERROR(TakeStates(reader, num_slices));
  if (limits_.image_rows > 0) RETURN_IF_ERROR(TakeImages(reader, num_rows));
  for (int64_t group = 0; group < limits_.num_groups; ++group) {
    for (int64_t i = 0; i < num_slices; ++i) {
      kernels::AttentionSlice slice = slices_[static_cast<size_t>(i)];
      ASSIGN_OR_RETURN(const int64_t number,
                       reader.Next("a block table's number", limits_.max_tables() - 1));
      if (seen_[static_cast<size_t>(number)]++ != 0)
        return reader.Wrong(fmt::format("block table {} appears a second time", number));
      const int64_t size = BlocksOf(slice, limits_.block_size);
      ASSIGN_OR_RETURN(const int64_t kept,
                       reader.Next("entries that are kept", std::min(size, sent_.size(number))));
      const std::span<int32_t> table = sent_.table(number);
      for (int64_t entry = kept; entry < size; ++entry) {
        ASSIGN_OR_RETURN(const int64_t block, reader.Next("a block", limits_.num_blocks));
        table[static_cast<size_t>(entry)] = static_cast<int32_t>(block + kNoBlockId);
      }
      sent_.size(number) = size;
      slice.block_table = table.data();
      if (group == 0) {
        slices_[static_cast<size_t>(i)] = slice;
      } else {
        slices_.push_back(slice);
      }
    }
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    ASSIGN_OR_RETURN(const int64_t token, reader.Next("a token", limits_.vocab_size - 1));
    tokens_.push_back(static_cast<int32_t>(token));
  }
  int64_t next = 0;
  for (int64_t i = 0; i < num_logits; ++i) {
    ASSIGN_OR_RETURN(const int64_t skipped, reader.Next("a logit row", num_rows - 1 - next));
    logit_rows_.push_back(static_cast<int32_t>(next + skipped));
    next += skipped + 1;
  }
  if (!reader.is_at_end()) return reader.Wrong("expected the end");
  input_ = {.tokens = tokens_,
            .positions = positions_,
            .slices = slices_,
            .logit_rows = logit_rows_,
            .num_groups = limits_.num_groups,
            .adapters = adapters_,
            .states = states_,
            .state_copies = state_copies_,
            .state_snapshots = state_snapshots_,
            .rope_positions = rope_positions_,
            .image_rows = image_rows_,
            .stored_image_rows = stored_image_rows_};
  return &input_;
}

}  // namespace sluice
