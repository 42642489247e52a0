#include "models/step_message.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace sluice {

namespace {

// Numbers are written in groups of seven bits, lowest first; all bytes except the last have the top
// bit set.
constexpr int kMostNumberBytes = 5;
constexpr int64_t kNoBlockId = -1;  // for positions that are no longer seen

}  // namespace

class StepDecoder::NumberReader {
 public:
  explicit NumberReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // kInvalidData for a number above `most`.
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
  return numbers * kMostNumberBytes;
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

// Sequences keep their order between steps except those that end, so the number after the previous
// slice's is likely right.
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

std::span<const std::byte> StepEncoder::Encode(const StepInput& input) {
  CHECK(input.image_rows.empty() && input.rope_positions.empty(),
        "rows of images do not go to other processes and stages");
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
    RETURN_IF_ERROR(next("the slot that a copy goes to", last, copy.to));
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

Result<const StepInput*> StepDecoder::Decode(std::span<const std::byte> message) {
  NumberReader reader(message);
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
  for (int64_t group = 0; group < limits_.num_groups; ++group) {
    for (int64_t i = 0; i < num_slices; ++i) {
      kernels::AttentionSlice slice = slices_[static_cast<size_t>(i)];
      ASSIGN_OR_RETURN(const int64_t number,
                       reader.Next("a block table's number", limits_.max_tables() - 1));
      if (seen_[static_cast<size_t>(number)]++ != 0)
        return reader.Wrong(fmt::format("block table {} a second time", number));
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
            .state_snapshots = state_snapshots_};
  return &input_;
}

}  // namespace sluice
