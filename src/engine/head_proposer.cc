#include "engine/head_proposer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"
#include "cache/block_counts.h"

namespace sluice {
namespace {

bool IsNarrow(const DraftPlan& plan) {
  return !plan.head().target_ids.empty();
}

int64_t WideNumbers(const DraftPlan& plan) {
  return IsNarrow(plan) ? plan.max_sequences * plan.model.vocab_size : 0;
}

Result<Buffer> AllocateNumbers(int64_t count, const char* what) {
  return Buffer::Allocate(static_cast<size_t>(count) * sizeof(float), what);
}

Result<KvCache> MakeCache(const DraftPlan& plan, ThreadPool& pool, void* device_cache) {
  if (plan.on_device)
    return KvCache::Wrap(plan.layout, plan.kv_groups(), plan.num_blocks, device_cache);
  ASSIGN_OR_RETURN(KvCache cache,
                   KvCache::Allocate(plan.layout, plan.kv_groups(), plan.num_blocks));
  cache.Warm(pool);
  return cache;
}

}  // namespace

Result<std::unique_ptr<HeadProposer>> HeadProposer::Create(const DraftPlan& plan, Model& model,
                                                           ThreadPool& pool, void* device_cache) {
  const DrafterSpec& spec = plan.head();
  ASSIGN_OR_RETURN(KvCache cache, MakeCache(plan, pool, device_cache));
  Arrays arrays;
  ASSIGN_OR_RETURN(arrays.logits, AllocateNumbers(plan.options.max_logit_rows * spec.num_outputs,
                                                  "the drafting head's logits"));
  ASSIGN_OR_RETURN(arrays.wide,
                   AllocateNumbers(WideNumbers(plan), "the drafting head's logits of all tokens"));
  const int64_t width = plan.on_device ? 0 : std::max(spec.target_width(), plan.model.hidden_size);
  ASSIGN_OR_RETURN(arrays.hidden, AllocateNumbers(plan.options.max_rows * width,
                                                  "the drafting head's hidden rows"));
  const int64_t own = plan.on_device ? 0 : plan.max_sequences * plan.model.hidden_size;
  ASSIGN_OR_RETURN(arrays.handed, AllocateNumbers(own, "the drafting head's own hidden rows"));
  std::unique_ptr<HeadProposer> proposer(
      new HeadProposer(plan, model, pool, std::move(cache), std::move(arrays)));
  RETURN_IF_ERROR(model.RecordSteps(plan.options.recorded, proposer->cache_));
  return proposer;
}

int64_t HeadProposer::Bytes(const DraftPlan& plan, int num_threads) {
  const DrafterSpec& spec = plan.head();
  const int64_t rows = plan.options.max_rows + plan.max_sequences * kMostKept;
  const int64_t numbers =
      plan.options.max_logit_rows * spec.num_outputs + plan.max_sequences * plan.model.hidden_size +
      WideNumbers(plan) +
      (plan.on_device ? 0 : rows) * std::max(spec.target_width(), plan.model.hidden_size);
  const int64_t texts = plan.max_sequences * plan.options.max_context * int64_t{sizeof(int32_t)};
  return numbers * int64_t{sizeof(float)} + texts +
         Sampler::ScratchBytes(plan.model.vocab_size, num_threads);
}

HeadProposer::HeadProposer(const DraftPlan& plan, Model& model, ThreadPool& pool, KvCache cache,
                           Arrays arrays)
    : Drafter(DraftPolicy(plan.cost_ratio, plan.adaptive, plan.head().drafts_blocks())),
      plan_(plan),
      model_(model),
      threads_(pool),
      target_ids_(plan.head().target_ids),
      vocab_size_(plan.model.vocab_size),
      num_outputs_(plan.head().num_outputs),
      target_width_(plan.head().target_width()),
      hidden_size_(plan.model.hidden_size),
      block_size_(plan.head().drafts_blocks() ? plan.head().block_size : 0),
      cache_(std::move(cache)),
      blocks_(plan.num_blocks),
      index_(plan.keeps_prefixes ? std::make_unique<PrefixIndex>(blocks_, plan.layout.block_size)
                                 : nullptr),
      sampler_(vocab_size_, pool.num_threads()),
      arrays_(std::move(arrays)),
      samples_(static_cast<size_t>(plan.max_sequences)),
      samplings_(static_cast<size_t>(plan.max_sequences)) {
  const auto sequences = static_cast<size_t>(plan.max_sequences);
  const auto rows = static_cast<size_t>(plan.options.max_rows);
  model_.PrepareLogits(arrays_.logits.As<float>());
  std::ranges::fill(arrays_.wide.As<float>(), -std::numeric_limits<float>::infinity());
  candidates_.reserve(sequences);
  active_.reserve(sequences);
  slices_.reserve(sequences);
  spans_.reserve(sequences);
  logit_rows_.reserve(std::max(sequences, static_cast<size_t>(plan.options.max_logit_rows)));
  tokens_.reserve(rows);
  positions_.reserve(rows);
  if (plan.on_device) hidden_rows_.reserve(rows);
}

HeadProposer::~HeadProposer() {
  model_.PrepareLogits({});  // frees the memory of the logits before the model is destroyed
}

void HeadProposer::Begin(std::span<const int32_t> tokens, std::string_view cache_salt,
                         const SequenceSampling& sampling, DraftSequence& state) {
  if (state.params) return;
  state.params = WithoutLogprobs(*sampling.params);
  if (index_ == nullptr) return;
  PrefixLookup lookup;
  // The head's rows start with the second token, but they also depend on the first. So the first
  // token is part of the salt.
  state.salt = fmt::format("{}\n{}", cache_salt, tokens.front());
  state.cursor = index_->Start(state.salt);
  const auto most = std::max<int64_t>(0, std::ssize(tokens) - 2) / plan_.layout.block_size;
  state.num_computed = plan_.layout.block_size * index_->Match(tokens.subspan(1), most, state.salt,
                                                               lookup, state.cursor, state.blocks);
}

void HeadProposer::DropFirst(int64_t count, DraftSequence& state) const {
  if (plan_.on_device)
    state.kept.erase(state.kept.begin(), state.kept.begin() + count);
  else
    state.hidden.erase(state.hidden.begin(), state.hidden.begin() + count * target_width_);
  state.hidden_first += count;
}

void HeadProposer::DropLost(DraftSequence& state) const {
  if (!plan_.on_device) return;
  const auto first = std::ranges::lower_bound(state.kept, num_kept_ - plan_.options.kept_rows);
  DropFirst(first - state.kept.begin(), state);
}

void HeadProposer::Keep(const Hidden& hidden, int64_t begin, DraftSequence& state) {
  DropLost(state);
  const int64_t end = state.hidden_first + NumHidden(state);
  if (NumHidden(state) == 0 || hidden.first + begin > end) {
    DropAll(state);
    state.hidden_first = hidden.first + begin;
  } else {
    begin = std::max(begin, end - hidden.first);
  }
  if (begin >= hidden.count) return;
  if (plan_.on_device) {
    KeepOnDevice(hidden, begin, state);
  } else {
    state.hidden.insert(state.hidden.end(), hidden.rows + begin * target_width_,
                        hidden.rows + hidden.count * target_width_);
  }
  const int64_t more = NumHidden(state) - kMostKept;
  if (more > 0) DropFirst(more, state);
}

void HeadProposer::KeepOnDevice(const Hidden& hidden, int64_t begin, DraftSequence& state) {
  const int64_t places = plan_.options.kept_rows;
  while (begin < hidden.count) {
    const int64_t place = num_kept_ % places;
    const int64_t count = std::min(hidden.count - begin, places - place);
    model_.KeepRows(hidden.step, hidden.step_row + begin, count, place);
    for (int64_t i = 0; i < count; ++i) state.kept.push_back(num_kept_++);
    begin += count;
  }
}

void HeadProposer::SkipMissing(DraftSequence& state) const {
  DropLost(state);
  if (NumHidden(state) == 0) return;
  DropFirst(std::clamp<int64_t>(NextOf(state) - state.hidden_first, 0, NumHidden(state)), state);
  if (NumHidden(state) > 0) state.num_skipped += state.hidden_first - NextOf(state);
}

bool HeadProposer::TakeBlocks(DraftSequence& state, int64_t rows) {
  BlockList& list = state.blocks[0];
  const int64_t slots = state.num_computed + rows;
  if (slots > plan_.options.max_context) return false;
  const int64_t missing = BlocksForTokens(slots, plan_.layout.block_size) - list.size();
  return missing <= 0 || blocks_.Take(missing, list);
}

void HeadProposer::Take(int64_t num_sequences, std::span<const Hidden> hidden) {
  if (is_broken_) return;
  try {
    for (const Hidden& one : hidden) TakeRows(num_sequences, one);
  } catch (...) {
    Break({});
  }
}

void HeadProposer::TakeRows(int64_t num_sequences, const Hidden& one) {
  DraftSequence& state = *one.state;
  if (one.count == 0) return;
  Begin(one.tokens, one.cache_salt, *one.sampling, state);
  const int64_t behind = one.first + one.count - NextOf(state);
  const bool is_prompt = behind > kMostKept && one.count > 1;
  if (is_prompt && policy_.PaysToCatchUp(num_sequences, behind, one.left, state.acceptance) &&
      CatchUp(one)) {
    return;
  }
  Keep(one, std::max<int64_t>(0, one.count - kMostKept), state);
}

bool HeadProposer::CatchUp(const Hidden& hidden) {
  DraftSequence& state = *hidden.state;
  // First computes the kept rows, if the new ones directly follow them.
  if (NumHidden(state) > 0) {
    SkipMissing(state);
    const int64_t count = NumHidden(state);
    if (count > 0 && state.hidden_first + count == hidden.first) {
      if (!TakeBlocks(state, count)) return false;
      ClearStep();
      AddRows(hidden.tokens, NextOf(state), count, state.num_computed, state);
      AddKept(state);
      Forward(Source::kKept, {}, /*wants=*/false);
      state.num_computed += count;
    }
    DropAll(state);
  }
  int64_t begin = std::max<int64_t>(0, NextOf(state) - hidden.first);
  state.num_skipped += std::max<int64_t>(0, hidden.first - NextOf(state));
  while (begin < hidden.count - 1) {
    const int64_t count = std::min(plan_.options.max_rows, hidden.count - 1 - begin);
    if (!TakeBlocks(state, count)) break;
    const Clock::time_point start = Clock::now();
    ClearStep();
    AddRows(hidden.tokens, NextOf(state), count, state.num_computed, state);
    AddGiven(hidden, begin, count);
    Forward(Source::kGiven, hidden.step, /*wants=*/false);
    policy_.LearnCatchUp(SecondsSince(start), count);
    state.num_computed += count;
    begin += count;
    Insert(hidden.tokens, state);
  }
  Keep(hidden, std::max(begin, hidden.count - kMostKept), state);
  return true;
}

void HeadProposer::ClearStep() {
  tokens_.clear();
  positions_.clear();
  slices_.clear();
  spans_.clear();
  logit_rows_.clear();
  hidden_rows_.clear();
  num_hidden_ = 0;
}

void HeadProposer::AddRows(std::span<const int32_t> tokens, int64_t first, int64_t count,
                           int64_t context, DraftSequence& state) {
  const auto row = std::ssize(tokens_);
  slices_.push_back(
      {row, static_cast<int32_t>(count), static_cast<int32_t>(context), state.blocks[0].data()});
  for (int64_t i = first; i < first + count; ++i) {
    tokens_.push_back(tokens[static_cast<size_t>(i + 1)]);
    positions_.push_back(static_cast<int32_t>(i));
  }
  logit_rows_.push_back(static_cast<int32_t>(row + count - 1));
}

void HeadProposer::AddHidden(const float* rows, int64_t count, int64_t width) {
  std::copy_n(rows, count * width, arrays_.hidden.As<float>().data() + num_hidden_);
  num_hidden_ += count * width;
}

void HeadProposer::AddKept(const DraftSequence& state) {
  if (!plan_.on_device) return AddHidden(state.hidden.data(), NumHidden(state), target_width_);
  for (const int64_t number : state.kept)
    hidden_rows_.push_back(static_cast<int32_t>(number % plan_.options.kept_rows));
}

void HeadProposer::AddGiven(const Hidden& hidden, int64_t begin, int64_t count) {
  if (!plan_.on_device) return AddHidden(hidden.rows + begin * target_width_, count, target_width_);
  for (int64_t i = 0; i < count; ++i)
    hidden_rows_.push_back(static_cast<int32_t>(hidden.step_row + begin + i));
}

void HeadProposer::AddOwn(int64_t i) {
  if (plan_.on_device) return hidden_rows_.push_back(static_cast<int32_t>(i));
  AddHidden(arrays_.handed.As<float>().data() + i * hidden_size_, 1, hidden_size_);
}

void HeadProposer::Forward(Source source, const DeviceHidden& given, bool wants) {
  if (!wants) logit_rows_.clear();
  StepInput input;
  input.tokens = tokens_;
  input.positions = positions_;
  input.slices = slices_;
  if (wants) input.logit_rows = logit_rows_;
  input.takes_target = source != Source::kOwn;
  if (block_size_ > 0 && source == Source::kOwn) {
    // The block of a DFlash drafter reads no hidden rows.
  } else if (plan_.on_device) {
    input.hidden_memory = source == Source::kKept    ? model_.kept_rows()
                          : source == Source::kGiven ? given
                                                     : model_.handed_rows();
    input.hidden_rows = hidden_rows_;
  } else {
    input.hidden = arrays_.hidden.As<float>().first(static_cast<size_t>(num_hidden_));
    if (wants) input.handed = arrays_.handed.As<float>();
  }
  model_.Forward(threads_, input, cache_, arrays_.logits.As<float>().data());
}

void HeadProposer::Insert(std::span<const int32_t> tokens, DraftSequence& state) {
  const int64_t block_size = plan_.layout.block_size;
  // Skips sequences with skipped rows, whose blocks are incomplete.
  if (index_ == nullptr || state.num_skipped > 0) return;
  while ((state.cursor.num_blocks + 1) * block_size <= state.num_computed) {
    const auto first = static_cast<size_t>(1 + state.cursor.num_blocks * block_size);
    index_->Insert(tokens.subspan(first, static_cast<size_t>(block_size)), state.salt, state.cursor,
                   state.blocks);
  }
}

void HeadProposer::Propose(int64_t num_sequences, std::span<Job> jobs) {
  CHECK_LE(std::ssize(jobs), plan_.max_sequences);
  candidates_.clear();
  active_.clear();
  for (Job& job : jobs) {
    job.proposal->clear();
    DraftSequence& state = *job.state;
    const int64_t length = std::ssize(job.history.tokens);
    int64_t most = 0;
    if (!is_broken_ && length > 1) {
      Begin(job.history.tokens, job.cache_salt, *job.sampling, state);
      SkipMissing(state);
      // Ready if the hidden rows up to the last token's are available.
      const bool is_ready =
          NumHidden(state) > 0 && state.hidden_first + NumHidden(state) == length - 1;
      const int64_t slots = plan_.options.max_context - state.num_computed - NumHidden(state);
      if (is_ready && block_size_ == 0) most = std::clamp<int64_t>(slots + 1, 0, job.most);
      if (is_ready && slots >= block_size_ && block_size_ > 0)
        most = std::min(job.most, block_size_ - 1);
    }
    candidates_.push_back({.acceptance = &state.acceptance,
                           .most = most,
                           .behind = std::max<int64_t>(0, NumHidden(state) - 1),
                           .left = job.left});
  }
  policy_.Choose(num_sequences, candidates_);
  int64_t rows = plan_.options.max_rows;
  ClearStep();
  for (size_t i = 0; i < jobs.size(); ++i) {
    Job& job = jobs[i];
    DraftSequence& state = *job.state;
    const int64_t length = candidates_[i].length, count = NumHidden(state);
    const int64_t more = block_size_ > 0 ? block_size_ : length - 1;
    if (length == 0 || count > rows || !TakeBlocks(state, count + more)) continue;
    rows -= count;
    state.tokens.assign(job.history.tokens.begin(), job.history.tokens.end());
    SequenceSampling& sampling = samplings_[active_.size()];
    sampling = SamplingOf(job);
    active_.push_back({.job = &job, .sampling = &sampling, .length = length});
    AddRows(state.tokens, NextOf(state), count, state.num_computed, state);
    AddKept(state);
  }
  if (active_.empty()) return;
  try {
    if (block_size_ > 0) return RunBlocks();
    bool is_first = true;
    while (!active_.empty()) {
      const Clock::time_point start = Clock::now();
      Forward(is_first ? Source::kKept : Source::kOwn, {}, /*wants=*/true);
      if (is_first) {
        for (const Active& active : active_) {
          DraftSequence& state = *active.job->state;
          state.num_computed += NumHidden(state);
          DropAll(state);
          Insert(state.tokens, state);
        }
      }
      is_first = false;
      const size_t num_rows = tokens_.size(), num_sequences = active_.size();
      Draw();
      LearnPass(start, num_sequences, num_rows);
    }
  } catch (...) {
    Break(jobs);
  }
}

void HeadProposer::RunBlocks() {
  const Clock::time_point start = Clock::now();
  Forward(Source::kKept, {}, /*wants=*/false);
  for (const Active& active : active_) {
    DraftSequence& state = *active.job->state;
    state.num_computed += NumHidden(state);
    DropAll(state);
    Insert(state.tokens, state);
  }
  ClearStep();
  for (Active& active : active_) {
    DraftSequence& state = *active.job->state;
    const auto row = std::ssize(tokens_);
    const auto size = static_cast<int32_t>(block_size_);
    const auto context = static_cast<int32_t>(state.num_computed);
    spans_.push_back({context, context + size});
    slices_.push_back({.first_row = row,
                       .num_tokens = size,
                       .context = context,
                       .block_table = state.blocks[0].data(),
                       .spans = &spans_.back(),
                       .num_spans = 1});
    tokens_.push_back(state.tokens.back());
    tokens_.resize(static_cast<size_t>(row + block_size_), plan_.head().mask_token);
    for (int64_t i = 0; i < block_size_; ++i)
      positions_.push_back(static_cast<int32_t>(NextOf(state) + i));
    active.row = std::ssize(logit_rows_);
    for (int64_t i = 1; i <= active.length; ++i)
      logit_rows_.push_back(static_cast<int32_t>(row + i));
  }
  Forward(Source::kOwn, {}, /*wants=*/true);
  const auto num_sequences = std::ssize(active_);
  DrawBlocks();
  // A pass has a whole block of rows per sequence, so the number of rows does not show whether the
  // pass computes missing tokens.
  policy_.LearnPass(num_sequences, SecondsSince(start));
}

void HeadProposer::DrawBlocks() {
  for (int64_t place = 0; !active_.empty(); ++place) {
    for (size_t i = 0; i < active_.size(); ++i)
      ReadLogits(active_[i].row + place, active_[i], samples_[i]);
    sampler_.Sample(threads_, std::span(samples_).first(active_.size()));
    size_t num_left = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      const Active active = active_[i];
      if (Append(active, samples_[i]) && place + 1 < active.length) active_[num_left++] = active;
    }
    active_.resize(num_left);
  }
}

void HeadProposer::ReadLogits(int64_t row, const Active& active, SampleJob& sample) {
  const auto at = [row](std::span<float> rows, int64_t width) {
    return rows.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
  };
  const std::span<const float> own = at(arrays_.logits.As<float>(), num_outputs_);
  sample.logits = own;
  if (!target_ids_.empty()) {
    const std::span<float> all = at(arrays_.wide.As<float>(), vocab_size_);
    for (size_t k = 0; k < target_ids_.size(); ++k)
      all[static_cast<size_t>(target_ids_[k])] = own[k];
    sample.logits = all;
  }
  sample.sequence = active.sampling;
  sample.history = {active.job->state->tokens, active.job->history.num_prompt_tokens};
}

bool HeadProposer::Append(const Active& active, const SampleJob& sample) {
  if (!sample.error.empty()) return false;  // only sampling errors of the target fail requests
  active.job->state->tokens.push_back(sample.token);
  active.job->proposal->push_back(sample.token);
  return true;
}

void HeadProposer::Draw() {
  for (size_t i = 0; i < active_.size(); ++i)
    ReadLogits(static_cast<int64_t>(i), active_[i], samples_[i]);
  sampler_.Sample(threads_, std::span(samples_).first(active_.size()));
  ClearStep();
  size_t num_left = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    const Active active = active_[i];
    if (!Append(active, samples_[i])) continue;
    DraftSequence& state = *active.job->state;
    const int64_t proposed = std::ssize(*active.job->proposal);
    if (proposed == active.length) continue;
    const int64_t ahead = proposed - 1;
    AddRows(state.tokens, NextOf(state) + ahead, 1, state.num_computed + ahead, state);
    AddOwn(static_cast<int64_t>(i));
    active_[num_left++] = active;
  }
  active_.resize(num_left);
}

void HeadProposer::Break(std::span<Job> jobs) {
  LOG_ERROR("engine", "the drafting head failed and proposes no more tokens: {}", CaughtMessage());
  is_broken_ = true;
  active_.clear();
  for (const Job& job : jobs) job.proposal->clear();
}

}  // namespace sluice
