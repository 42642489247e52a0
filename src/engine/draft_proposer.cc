#include "engine/draft_proposer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/firewall.h"
#include "base/log.h"
#include "cache/block_counts.h"

namespace sluice {

Result<std::unique_ptr<DraftProposer>> DraftProposer::Create(const DraftPlan& plan, Model& model,
                                                             ThreadPool& pool) {
  ASSIGN_OR_RETURN(KvCache cache,
                   KvCache::Allocate(plan.layout, plan.kv_groups(), plan.num_blocks));
  cache.Warm(pool);
  const int64_t bytes = plan.max_sequences * model.config().vocab_size * int64_t{sizeof(float)};
  ASSIGN_OR_RETURN(Buffer logits,
                   Buffer::Allocate(static_cast<size_t>(bytes), "the draft model's logits"));
  return std::unique_ptr<DraftProposer>(
      new DraftProposer(plan, model, pool, std::move(cache), std::move(logits)));
}

int64_t DraftProposer::Bytes(const DraftPlan& plan, int64_t vocab_size, int num_threads) {
  const int64_t logits = plan.max_sequences * vocab_size * int64_t{sizeof(float)};
  const int64_t texts = plan.max_sequences * plan.options.max_context * int64_t{sizeof(int32_t)};
  return logits + texts + Sampler::ScratchBytes(vocab_size, num_threads);
}

DraftProposer::DraftProposer(const DraftPlan& plan, Model& model, ThreadPool& pool, KvCache cache,
                             Buffer logits)
    : Drafter(DraftPolicy(plan.cost_ratio, plan.adaptive)),
      plan_(plan),
      model_(model),
      threads_(pool),
      cache_(std::move(cache)),
      blocks_(plan.num_blocks),
      index_(plan.keeps_prefixes ? std::make_unique<PrefixIndex>(blocks_, plan.layout.block_size)
                                 : nullptr),
      sampler_(model.config().vocab_size, pool.num_threads()),
      logits_(std::move(logits)),
      samplings_(static_cast<size_t>(plan.max_sequences)) {
  const auto sequences = static_cast<size_t>(plan.max_sequences);
  const auto rows = static_cast<size_t>(plan.options.max_rows);
  model_.PrepareLogits(logits_.As<float>());
  candidates_.reserve(sequences);
  active_.reserve(sequences);
  drawing_.reserve(sequences);
  samples_.resize(sequences);
  slices_.reserve(sequences);
  logit_rows_.reserve(sequences);
  tokens_.reserve(rows);
  positions_.reserve(rows);
}

DraftProposer::~DraftProposer() {
  model_.PrepareLogits({});  // frees the memory of the logits before the model is destroyed
}

void DraftProposer::Follow(Job& job) {
  DraftSequence& state = *job.state;
  const std::span<const int32_t> tokens = job.history.tokens;
  const int64_t block_size = plan_.layout.block_size;
  if (!state.params) {
    state.params = WithoutLogprobs(*job.sampling->params);
    state.tokens.assign(tokens.begin(), tokens.end());
    if (index_ != nullptr) {
      PrefixLookup lookup;
      state.cursor = index_->Start(job.cache_salt);
      const auto most = (static_cast<int64_t>(tokens.size()) - 1) / block_size;
      const int64_t found =
          index_->Match(tokens, most, job.cache_salt, lookup, state.cursor, state.blocks);
      state.num_computed = found * block_size;
    }
  } else {
    // Keeps the proposed tokens that the sequence accepted.
    const std::span<const int32_t> proposed =
        std::span(state.tokens).subspan(static_cast<size_t>(state.num_confirmed));
    const std::span<const int32_t> added = tokens.subspan(static_cast<size_t>(state.num_confirmed));
    const auto equal = std::ranges::mismatch(proposed, added).in1 - proposed.begin();
    const int64_t kept = state.num_confirmed + equal;
    state.num_computed = std::min(state.num_computed, kept);
    state.tokens.resize(static_cast<size_t>(kept));
    state.tokens.insert(state.tokens.end(), added.begin() + equal, added.end());
  }
  state.num_confirmed = static_cast<int64_t>(tokens.size());
  // The last token's row is always computed: its logits predict the next token.
  state.num_computed = std::min(state.num_computed, state.num_confirmed - 1);
  if (index_ == nullptr) return;
  while ((state.cursor.num_blocks + 1) * block_size <= state.num_computed) {
    const auto first = static_cast<size_t>(state.cursor.num_blocks * block_size);
    index_->Insert(tokens.subspan(first, static_cast<size_t>(block_size)), job.cache_salt,
                   state.cursor, state.blocks);
  }
}

bool DraftProposer::TakeBlocks(Job& job, int64_t& length) {
  BlockList& list = job.state->blocks[0];
  const int64_t block_size = plan_.layout.block_size;
  const int64_t room = (list.size() + blocks_.num_available()) * block_size;
  // The last proposed token need not be computed.
  length = std::min(length, room - job.state->num_confirmed + 1);
  if (length < 1) return false;
  const int64_t needed = BlocksForTokens(job.state->num_confirmed + length - 1, block_size);
  CHECK(blocks_.Take(std::max<int64_t>(0, needed - list.size()), list));
  return true;
}

void DraftProposer::Propose(int64_t num_sequences, std::span<Job> jobs) {
  CHECK_LE(static_cast<int64_t>(jobs.size()), plan_.max_sequences);
  candidates_.clear();
  active_.clear();
  for (Job& job : jobs) {
    job.proposal->clear();
    if (!is_broken_) Follow(job);
    const auto length = static_cast<int64_t>(job.history.tokens.size());
    const int64_t room = is_broken_ ? 0 : plan_.options.max_context - length + 1;
    candidates_.push_back({.acceptance = &job.state->acceptance,
                           .most = std::clamp<int64_t>(room, 0, job.most),
                           .behind = length - 1 - job.state->num_computed,
                           .left = job.left});
  }
  policy_.Choose(num_sequences, candidates_);
  // Sequences that can propose in this pass take precedence over sequences with missing tokens.
  int64_t rows = plan_.options.max_rows;
  for (const bool are_behind : {false, true}) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      Job& job = jobs[i];
      DraftSequence& state = *job.state;
      const int64_t missing = candidates_[i].behind + 1;
      int64_t length = candidates_[i].length;
      if (length == 0 || rows == 0 || (missing > kMaxSpeculativeTokens) != are_behind) continue;
      if (!TakeBlocks(job, length)) continue;
      const int64_t computed = std::min(missing, rows);
      rows -= computed;
      SequenceSampling& sampling = samplings_[active_.size()];
      sampling = SamplingOf(job);
      active_.push_back({.job = &job,
                         .sampling = &sampling,
                         .length = computed == missing ? length : 0,
                         .end = state.num_computed + computed});
    }
  }
  try {
    while (!active_.empty()) RunPass();
  } catch (...) {
    LOG_ERROR("engine", "the draft model failed and proposes no more tokens: {}", CaughtMessage());
    is_broken_ = true;
    for (const Job& job : jobs) job.proposal->clear();
  }
}

void DraftProposer::RunPass() {
  const Clock::time_point start = Clock::now();
  tokens_.clear();
  positions_.clear();
  slices_.clear();
  logit_rows_.clear();
  drawing_.clear();
  for (const Active& active : active_) {
    const DraftSequence& state = *active.job->state;
    slices_.push_back({static_cast<int64_t>(tokens_.size()),
                       static_cast<int32_t>(active.end - state.num_computed),
                       static_cast<int32_t>(state.num_computed), state.blocks[0].data()});
    for (int64_t i = state.num_computed; i < active.end; ++i) {
      tokens_.push_back(state.tokens[static_cast<size_t>(i)]);
      positions_.push_back(static_cast<int32_t>(i));
    }
    if (active.length == 0) continue;
    logit_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    drawing_.push_back(active);
  }
  model_.Forward(threads_, {tokens_, positions_, slices_, logit_rows_}, cache_,
                 logits_.As<float>().data());
  for (const Active& active : active_) active.job->state->num_computed = active.end;

  const auto vocab_size = static_cast<size_t>(model_.config().vocab_size);
  for (size_t i = 0; i < drawing_.size(); ++i) {
    SampleJob& sample = samples_[i];
    sample.logits = logits_.As<float>().subspan(i * vocab_size, vocab_size);
    sample.sequence = drawing_[i].sampling;
    sample.history = {drawing_[i].job->state->tokens, drawing_[i].job->history.num_prompt_tokens};
  }
  sampler_.Sample(threads_, std::span(samples_).first(drawing_.size()));
  active_.clear();
  for (size_t i = 0; i < drawing_.size(); ++i) {
    Active active = drawing_[i];
    if (!samples_[i].error.empty()) continue;  // only sampling errors of the target fail requests
    DraftSequence& state = *active.job->state;
    state.tokens.push_back(samples_[i].token);
    active.job->proposal->push_back(samples_[i].token);
    active.end = static_cast<int64_t>(state.tokens.size());
    if (static_cast<int64_t>(active.job->proposal->size()) < active.length)
      active_.push_back(active);
  }
  LearnPass(start, slices_.size(), tokens_.size());
}

}  // namespace sluice
