#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

int64_t MostTokensInFlight(const SchedulerLimits& limits) {
  return limits.steps_in_flight * limits.max_num_batched_tokens;
}

}  // namespace

int64_t MostBlocks(const SchedulerLimits& limits, int64_t tokens) {
  int64_t blocks = 0;
  for (const AttentionSpan& group : limits.groups)
    blocks += MostBlocks(group, tokens, MostTokensInFlight(limits), limits.block_size);
  return blocks;
}

int64_t FairQuantum(const SchedulerLimits& limits) {
  return std::max<int64_t>(1, limits.max_num_batched_tokens / 8);
}

namespace {

// The quantum under policies with a single share.
constexpr int64_t kNoQuantum = int64_t{1} << 40;

// Whether more tokens than the last one remain to be computed.
bool IsPrefill(const ScheduledSequence& sequence) {
  return sequence.num_begun < sequence.length() - 1;
}

void AppendPrefill(ScheduledSequence& sequence) {
  Share& share = *sequence.share;
  sequence.next_prefill = nullptr;
  (share.first_prefill == nullptr ? share.first_prefill : share.last_prefill->next_prefill) =
      &sequence;
  share.last_prefill = &sequence;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool& pool, PrefixIndex* index,
                     StatePool* states, ImagePool* images)
    : limits_(limits),
      pool_(pool),
      index_(index),
      states_(states),
      images_(images),
      shares_(limits.policy == SchedulingPolicy::kFair ? FairQuantum(limits) : kNoQuantum,
              limits.policy == SchedulingPolicy::kFcfs ? Ageing() : limits.ageing) {
  CHECK_GT(limits.block_size, 0);
  CHECK_GT(limits.max_num_seqs, 0);
  CHECK_GE(limits.max_num_batched_tokens, limits.max_num_seqs);
  CHECK_GT(limits.max_prompt_logit_rows, 0);
  CHECK(limits.num_stages >= 1 && limits.steps_in_flight >= limits.num_stages);
  CHECK_GE(limits.ageing.level_us, 0);
  CHECK_GE(limits.ageing.max_levels, 0);
  CHECK(!limits.groups.empty() && limits.groups[0].sees_all());
  constexpr int64_t kAnyLength = int64_t{1} << 40;
  for (const AttentionSpan& group : limits.groups) {
    most_blocks_.push_back(
        MostBlocks(group, kAnyLength, MostTokensInFlight(limits), limits.block_size));
  }
  if (states != nullptr) {
    CHECK_GE(states->num_slots(), limits.max_num_seqs);
    CHECK(std::ranges::all_of(limits.groups, &AttentionSpan::sees_all),
          "a sequence that goes back to a snapshot needs the positions before it");
    CHECK_EQ(limits.snapshot_interval % limits.block_size, 0);
  }
  const size_t places = static_cast<size_t>(limits.max_num_seqs);
  running_.reserve(places);
  plan_.slices.reserve(places);
  plan_.preempted.reserve(places);
  plan_.state_copies.reserve(places);
}

void Scheduler::SetTime(int64_t now_us) {
  CHECK_GE(now_us, now_us_);
  now_us_ = now_us;
}

void Scheduler::InsertWaiting(ScheduledSequence& sequence) {
  sequence.state = ScheduledSequence::State::kWaiting;
  sequence.share->waiting.Insert(sequence);
}

void Scheduler::Add(ScheduledSequence& sequence) {
  CHECK(sequence.state == ScheduledSequence::State::kNew);
  CHECK(!sequence.tokens.empty());
  CHECK_LE(MostBlocks(limits_, sequence.max_total_tokens), pool_.num_blocks());
  CHECK(sequence.images.empty() ||
        (images_ != nullptr && sequence.keys.size() == sequence.tokens.size()));
  sequence.blocks = BlockTables(num_groups());
  sequence.level = limits_.policy == SchedulingPolicy::kFcfs ? 0 : sequence.priority;
  sequence.order = next_order_++;
  sequence.waiting_since = now_us_;
  sequence.waited_us = 0;
  sequence.share = &shares_.Join(limits_.policy == SchedulingPolicy::kFair ? sequence.client : 0);
  sequence.blocks.set_owner(sequence.share->client);
  ++num_waiting_;
  ScheduledSequence* const leader = sequence.leader;
  if (leader != nullptr) {
    CHECK(leader->state != ScheduledSequence::State::kNew, "the leader is not here");
    if (leader->num_computed < leader->num_prompt_tokens)
      return Follow(sequence, *leader, leader->num_prompt_tokens);
    sequence.leader = nullptr;
  }
  InsertWaiting(sequence);
}

void Scheduler::Follow(ScheduledSequence& sequence, ScheduledSequence& leader, int64_t tokens) {
  sequence.state = ScheduledSequence::State::kWaiting;
  sequence.leader = &leader;
  sequence.awaited = tokens;
  leader.followers.push_back(sequence);
  ++num_followers_;
}

template <typename Predicate>
void Scheduler::ReleaseFollowersIf(ScheduledSequence& leader, const Predicate& released) {
  for (auto next = leader.followers.begin(); next != leader.followers.end();) {
    ScheduledSequence& follower = *next;
    if (!released(follower)) {
      ++next;
      continue;
    }
    next = leader.followers.erase(next);
    --num_followers_;
    follower.leader = nullptr;
    InsertWaiting(follower);
  }
}

void Scheduler::ReleaseFollowers(ScheduledSequence& leader, int64_t tokens) {
  ReleaseFollowersIf(leader, [&](const auto& follower) { return follower.awaited <= tokens; });
}

void Scheduler::ReleaseMoreUrgent(ScheduledSequence& leader) {
  ReleaseFollowersIf(leader, [&](const auto& follower) { return follower.level < leader.level; });
}

PrefixIndex::Found Scheduler::FindPrefix(ScheduledSequence& sequence) {
  if (index_ == nullptr || !sequence.read_prefix_cache || sequence.wants_all_rows) return {};
  const int64_t most_blocks =
      (static_cast<int64_t>(sequence.tokens.size()) - 1) / limits_.block_size;
  return index_->Count(KeysOf(sequence), most_blocks, sequence.cache_salt, sequence.lookup);
}

bool Scheduler::FollowPrefill(Share& share) {
  ScheduledSequence& sequence = share.waiting.Next(now_us_);
  if (index_ == nullptr || !sequence.read_prefix_cache || sequence.wants_all_rows) return false;
  const std::span<const int32_t> tokens = KeysOf(sequence);
  ScheduledSequence* leader = nullptr;
  int64_t most = 0;  // number of common leading tokens, in whole blocks
  for (ScheduledSequence* running : running_) {
    if (running->share != &share || running->num_computed >= running->num_prompt_tokens ||
        running->is_held || running->cache_salt != sequence.cache_salt)
      continue;
    const auto prompt = KeysOf(*running).first(static_cast<size_t>(running->num_prompt_tokens));
    const auto differ = std::ranges::mismatch(prompt, tokens.first(tokens.size() - 1));
    const int64_t common = (differ.in1 - prompt.begin()) / limits_.block_size * limits_.block_size;
    // With states, snapshots inside the tokens of steps in flight are already planned.
    const int64_t done = states_ == nullptr ? running->num_computed : running->num_begun;
    if (common <= most || common <= done) continue;
    leader = running;
    most = common;
  }
  if (leader == nullptr) return false;
  const int64_t found = FindPrefix(sequence).blocks * limits_.block_size;
  const int64_t needed = static_cast<int64_t>(tokens.size()) - found;
  if (2 * (most - found) < needed) return false;
  share.waiting.Remove(sequence);
  if (states_ != nullptr) WantSnapshot(*leader, most);
  Follow(sequence, *leader, most);
  return true;
}

void Scheduler::Remove(ScheduledSequence& sequence) {
  ScheduledSequence* const only = &sequence;
  Remove({&only, 1});
}

void Scheduler::Remove(std::span<ScheduledSequence* const> sequences) {
  using State = ScheduledSequence::State;
  using Followers = decltype(ScheduledSequence::followers);
  bool any_ran = false;
  for (ScheduledSequence* sequence : sequences) {
    CHECK(sequence->state != State::kNew, "the sequence is not here");
    if (sequence->state == State::kRunning) {
      any_ran = true;
      --sequence->share->num_running;
    } else if (sequence->leader != nullptr) {
      sequence->leader->followers.erase(Followers::s_iterator_to(*sequence));
      sequence->leader = nullptr;
      --num_followers_;
      --num_waiting_;
    } else {
      sequence->share->waiting.Remove(*sequence);
      --num_waiting_;
    }
    ReleaseAll(*sequence);
    sequence->state = State::kNew;
  }
  if (any_ran && sequences.size() == 1) {
    running_.erase(std::find(running_.begin(), running_.end(), sequences.front()));
  } else if (any_ran) {
    std::erase_if(running_, [](const auto* sequence) { return sequence->state == State::kNew; });
  }
  // Done after the first loop, in which removed followers have left their leaders.
  for (ScheduledSequence* sequence : sequences) {
    ReleaseFollowers(*sequence, std::numeric_limits<int64_t>::max());
    shares_.Leave(*sequence->share);
  }
}

const StepPlan& Scheduler::Plan() {
  plan_.slices.clear();
  plan_.preempted.clear();
  plan_.num_tokens = plan_.num_logit_rows = plan_.prefix_queries = plan_.prefix_hits = 0;
  plan_.tier_queries = plan_.tier_hits = 0;
  plan_.moves_blocks = false;
  if (index_ != nullptr) index_->BeginStep();
  plan_.snapshots.clear();
  plan_.state_copies.clear();
  plan_.new_images.clear();
  Budget budget{.tokens = limits_.max_num_batched_tokens,
                .prompt_logit_rows = limits_.max_prompt_logit_rows,
                .image_rows = limits_.max_image_rows};
  plan_.num_preempted_for_others = 0;
  if (states_ != nullptr) TakeBackStates();
  if (std::exchange(must_give_way_, false)) GiveWay();
  PlanDecodes(budget);
  PlanShares(budget);
  PlanProposed(budget);
  PlanSnapshots();
  PlanProposedStates();
  for (const PlannedSlice& slice : plan_.slices)
    slice.sequence->num_begun += slice.num_tokens - slice.num_proposed;
  return plan_;
}

int64_t Scheduler::TableEnd(int64_t group, int64_t tokens, int64_t computed) const {
  return std::min(BlocksForTokens(tokens, limits_.block_size),
                  FirstBlock(group, computed) + most_blocks_[static_cast<size_t>(group)]);
}

int64_t Scheduler::MissingOf(const ScheduledSequence& sequence, int64_t group,
                             int64_t tokens) const {
  // A table may be longer than needed if draft tokens were rejected.
  return std::max<int64_t>(
      0, TableEnd(group, tokens, sequence.num_computed) - sequence.blocks[group].size());
}

bool Scheduler::TakeMissing(ScheduledSequence& sequence, int64_t tokens, int64_t kept) {
  int64_t missing = 0;
  for (int64_t group = 0; group < num_groups(); ++group)
    missing += MissingOf(sequence, group, tokens);
  if (missing > 0 && missing > pool_.num_available() - kept) return false;
  for (int64_t group = 0; group < num_groups(); ++group)
    CHECK(pool_.Take(MissingOf(sequence, group, tokens), sequence.blocks[group]));
  return true;
}

bool Scheduler::LacksPlace(const Share& share) const {
  return share.num_running == 0 && (num_running() == limits_.max_num_seqs || lacks_blocks_);
}

void Scheduler::GiveWay() {
  const Share* const favoured = shares_.AtTurn();
  if (favoured == nullptr || !LacksPlace(*favoured)) return;
  const Share* largest = nullptr;
  for (const ScheduledSequence* sequence : running_) {
    if (largest == nullptr || sequence->share->num_running > largest->num_running)
      largest = sequence->share;
  }
  if (largest == nullptr || largest->num_running < 2) return;
  Preempt(*PickVictim(largest));
  plan_.num_preempted_for_others = 1;
}

int64_t Scheduler::MostDecodes() const {
  const auto num_decodes = std::ranges::count_if(
      running_, [](const auto* sequence) { return !IsPrefill(*sequence) && !sequence->is_held; });
  return (num_decodes + limits_.num_stages - 1) / limits_.num_stages;
}

void Scheduler::PlanDecodes(Budget& budget) {
  // Takes the blocks for all decodes before planning slices, so that no preempted sequence has a
  // slice.
  for (size_t i = 0; i < running_.size();) {
    if (TakeMissing(*running_[i], running_[i]->length())) {
      ++i;
      continue;
    }
    Preempt(*PickVictim(nullptr));
    i = 0;  // preemption has changed the list
  }
  int64_t most = MostDecodes();
  for (ScheduledSequence* sequence : running_) {
    sequence->planned = 0;
    if (IsPrefill(*sequence) || sequence->is_held || sequence->num_begun == sequence->length() ||
        most == 0)
      continue;
    PlanTokens(*sequence, 1, budget);
    --most;
  }
}

int64_t Scheduler::ListPrefills() {
  int64_t count = 0;
  for (ScheduledSequence* sequence : running_) {
    // With states, a held sequence has gone back to a snapshot and would look like a prefill.
    if (!IsPrefill(*sequence) || (states_ != nullptr && sequence->is_held)) continue;
    AppendPrefill(*sequence);
    ++count;
  }
  return count;
}

void Scheduler::PlanShares(Budget& budget) {
  int64_t num_prefills = ListPrefills();
  const bool anybody_waits = num_prefills > 0 || num_waiting_ > num_followers_;
  for (ScheduledSequence* sequence : running_) {
    const int64_t owed = std::exchange(sequence->owed_tokens, 0);
    if (anybody_waits && owed > 0) shares_.Charge(*sequence->share, owed);
  }
  if (!anybody_waits) return;
  for (const PlannedSlice& decode : plan_.slices) shares_.Charge(*decode.sequence->share, 1);
  // Nothing is admitted while running sequences lack blocks.
  const bool admits =
      static_cast<int64_t>(plan_.preempted.size()) == plan_.num_preempted_for_others;
  lacks_blocks_ = false;
  Share* stopped = nullptr;  // its next sequence does not fit; prefills continue
  while (stopped == nullptr || num_prefills > 0) {
    Share* const share = stopped == nullptr ? shares_.AtTurn() : shares_.LeastGiven();
    if (share == nullptr) break;
    if (budget.tokens == 0) {
      must_give_way_ = stopped == nullptr && LacksPlace(*share);
      break;
    }
    budget.share_tokens = stopped == nullptr ? shares_.DeficitOf(*share) : shares_.quantum();
    if (share->first_prefill != nullptr) {
      if (PlanPrefill(*share, budget)) --num_prefills;
    } else if (admits && num_running() < limits_.max_num_seqs && FollowPrefill(*share)) {
      continue;
    } else if (admits && num_running() < limits_.max_num_seqs && Admit(*share, budget)) {
      ++num_prefills;
    } else {
      stopped = share;
      must_give_way_ = LacksPlace(*share);
    }
  }
  if (stopped != nullptr) shares_.ReturnTurn(*stopped);
  for (ScheduledSequence* sequence : running_)
    sequence->share->first_prefill = sequence->share->last_prefill = nullptr;
}

bool Scheduler::PlanPrefill(Share& share, Budget& budget) {
  ScheduledSequence& sequence = *share.first_prefill;
  const int64_t computed = sequence.num_begun + sequence.planned;
  const int64_t chunk = Chunk(sequence, computed, budget);
  if (chunk > 0) {
    UseImages(sequence, computed, chunk, budget);
    PlanTokens(sequence, chunk, budget);
    shares_.Charge(share, chunk);
  }
  if (chunk > 0 && computed + chunk < sequence.length()) return false;
  share.first_prefill = sequence.next_prefill;
  if (share.first_prefill == nullptr) share.last_prefill = nullptr;
  return true;
}

int64_t Scheduler::Chunk(const ScheduledSequence& sequence, int64_t computed,
                         const Budget& budget) const {
  return FitImages(sequence, computed, TextChunk(sequence, computed, budget), budget);
}

int64_t Scheduler::FitImages(const ScheduledSequence& sequence, int64_t computed, int64_t chunk,
                             const Budget& budget) const {
  if (chunk <= 0) return chunk;
  int64_t end = computed + chunk;
  int64_t unused = images_ != nullptr ? images_->num_unused() : 0;
  int64_t left = budget.image_rows;
  bool makes = budget.makes_images;
  for (const ScheduledSequence::Image& image : sequence.images) {
    if (image.end <= computed) continue;
    if (image.begin >= end) break;
    const int64_t stop = std::max<int64_t>(0, image.begin - computed);
    if (image.is_whole && image.end > end) {
      // A chunk that begins with the image may exceed the share's remaining tokens if the step has
      // room for it. Otherwise the image waits for a later step.
      const bool leads = stop == 0 && image.end - computed <= budget.tokens;
      if (!leads || (sequence.wants_all_rows && image.end - computed > budget.prompt_logit_rows))
        return stop;
      end = image.end;
    }
    if (images_->IsUsed(image.id)) continue;
    const bool is_new = !images_->HasRows(image.id);
    if (image.rows > unused || (is_new && makes && image.rows > left)) return stop;
    unused -= image.rows;
    if (!is_new) continue;
    left -= image.rows;
    makes = true;
  }
  return end - computed;
}

void Scheduler::UseImages(ScheduledSequence& sequence, int64_t first, int64_t num_tokens,
                          Budget& budget) {
  for (size_t i = 0; i < sequence.images.size(); ++i) {
    const ScheduledSequence::Image& image = sequence.images[i];
    if (image.end <= first || image.begin >= first + num_tokens) continue;
    if (!images_->Use(image.id)) continue;
    plan_.new_images.push_back({.sequence = &sequence, .image = i});
    budget.image_rows -= image.rows;
    budget.makes_images = true;
  }
}

int64_t Scheduler::TextChunk(const ScheduledSequence& sequence, int64_t computed,
                             const Budget& budget) const {
  const int64_t remaining = sequence.length() - computed;
  const int64_t most = std::min({remaining, budget.tokens, budget.share_tokens});
  // If a step has room for all rows of its tokens, prompt logprobs do not split a prompt.
  const bool may_divide = limits_.max_prompt_logit_rows < limits_.max_num_batched_tokens;
  // The row that samples counts as well, although room for it is reserved.
  if (sequence.wants_all_rows && (limits_.chunked_prefill || may_divide))
    return std::min(most, budget.prompt_logit_rows);
  if (!limits_.chunked_prefill) return remaining <= budget.tokens ? remaining : 0;
  if (limits_.long_prefill_token_threshold > 0)
    return std::min(most, limits_.long_prefill_token_threshold - sequence.planned);
  return most;
}

void Scheduler::PlanTokens(ScheduledSequence& sequence, int64_t num_tokens, Budget& budget) {
  const bool all_rows = sequence.wants_all_rows;
  if (sequence.planned == 0) {
    sequence.slice = plan_.slices.size();
    plan_.slices.push_back({.sequence = &sequence,
                            .first = sequence.num_begun,
                            .all_rows = all_rows,
                            .num_preemptions = sequence.num_preemptions,
                            .state = sequence.held_state.id()});
  }
  sequence.planned += num_tokens;
  PlannedSlice& slice = plan_.slices[sequence.slice];
  slice.num_tokens = sequence.planned;
  slice.samples = sequence.num_begun + sequence.planned == sequence.length();
  plan_.num_tokens += num_tokens;
  plan_.num_logit_rows += all_rows ? num_tokens : slice.samples;
  budget.tokens -= num_tokens;
  if (all_rows) budget.prompt_logit_rows -= num_tokens;
}

void Scheduler::PlanProposed(Budget& budget) {
  int64_t rest = std::min(limits_.max_proposed_tokens, budget.tokens);
  for (PlannedSlice& slice : plan_.slices) {
    ScheduledSequence& sequence = *slice.sequence;
    int64_t wanted = std::min(rest, static_cast<int64_t>(sequence.proposed.size()));
    if (states_ != nullptr) wanted = std::min(wanted, NumSpareStates());
    if (wanted <= 0 || !slice.samples || slice.num_tokens > 1 || slice.all_rows) continue;
    const auto tokens = static_cast<int64_t>(sequence.tokens.size());
    // As at admission, one block per group stays free for each running sequence.
    if (!TakeMissing(sequence, tokens + wanted, num_running() * num_groups())) continue;
    slice.num_tokens += wanted;
    slice.num_proposed = wanted;
    if (states_ != nullptr) {
      sequence.proposed_from = slice.first + 1;
      for (int64_t i = 0; i < wanted; ++i) sequence.proposed_states.push_back(states_->Take());
    }
    plan_.num_tokens += wanted;
    plan_.num_logit_rows += wanted;
    budget.tokens -= wanted;
    rest -= wanted;
  }
}

ScheduledSequence* Scheduler::PickVictim(const Share* share) const {
  // Ranks in different shares are not comparable.
  const ScheduledSequence* oldest =
      *std::ranges::min_element(running_, {}, [](const auto* sequence) { return sequence->order; });
  const ScheduledSequence* first = oldest;
  for (const ScheduledSequence* sequence : running_) {
    if (sequence->share != oldest->share) continue;
    if (std::tie(sequence->rank, sequence->order) < std::tie(first->rank, first->order))
      first = sequence;
  }
  struct Choice {
    ScheduledSequence* sequence = nullptr;
    int64_t deficit = 0;
    Rank rank;
    bool useless = true;
    int64_t cost = 0;
  } best;
  for (ScheduledSequence* sequence : running_) {
    if (sequence == first || (share != nullptr && sequence->share != share)) continue;
    const auto count_shared = [&](const BlockList& table) {
      int64_t shared = 0;
      for (const BlockId block : table.ids().subspan(static_cast<size_t>(table.num_absent())))
        shared += pool_.references(block) > 1;
      return shared;
    };
    int64_t shared = 0;
    for (int64_t group = 0; group < num_groups(); ++group)
      shared += count_shared(sequence->blocks[group]);
    const int64_t to_find = count_shared(sequence->blocks[0]) * limits_.block_size;
    const Choice choice{sequence, shares_.DeficitOf(*sequence->share), sequence->rank,
                        shared == sequence->blocks.num_held(),
                        std::max<int64_t>(0, sequence->num_computed - to_find)};
    const auto better = [&] {
      if (best.sequence == nullptr) return true;
      if (choice.deficit != best.deficit) return choice.deficit < best.deficit;
      if (choice.rank != best.rank) return choice.rank > best.rank;
      if (choice.useless != best.useless) return !choice.useless;
      if (choice.cost != best.cost) return choice.cost < best.cost;
      return choice.sequence->order > best.sequence->order;
    };
    if (better()) best = choice;
  }
  CHECK(best.sequence != nullptr, "a single sequence does not fit in {} blocks",
        pool_.num_blocks());
  return best.sequence;
}

void Scheduler::ReleaseAll(ScheduledSequence& sequence) {
  sequence.blocks.Clear();
  sequence.snapshots.clear();
  sequence.proposed_states.clear();
  sequence.held_state.Release();
  sequence.passing_block = kNoBlock;
}

void Scheduler::Preempt(ScheduledSequence& victim) {
  running_.erase(std::find(running_.begin(), running_.end(), &victim));
  ReleaseAll(victim);
  victim.num_computed = victim.num_begun = victim.num_drawn = 0;
  victim.cursor = {};
  --victim.share->num_running;
  ++victim.num_preemptions;
  ++num_preemptions_;
  plan_.preempted.push_back(&victim);
  ++num_waiting_;
  victim.waiting_since = now_us_ - victim.waited_us;
  InsertWaiting(victim);
  ReleaseMoreUrgent(victim);
}

void Scheduler::PreemptAll() {
  while (!running_.empty()) Preempt(*running_.back());
  plan_.preempted.clear();
}

bool Scheduler::Admit(Share& share, Budget& budget) {
  ++num_candidates_;
  ScheduledSequence& next = share.waiting.Next(now_us_);
  if (!TryAdmit(next, budget)) return false;
  AppendPrefill(next);
  return true;
}

bool Scheduler::HasRoomFor(const ScheduledSequence& sequence, const PrefixIndex::Found& found,
                           int64_t& missing) {
  const auto num_tokens = static_cast<int64_t>(sequence.tokens.size());
  missing = 0;
  for (int64_t group = 0; group < num_groups(); ++group)
    missing += TableEnd(group, num_tokens, found.blocks * limits_.block_size) - found.blocks;
  lacks_blocks_ = missing + num_running() * num_groups() > pool_.num_available() - found.unheld;
  return !lacks_blocks_;
}

bool Scheduler::MoveBlocks(ScheduledSequence& sequence, PrefixIndex::Found& found) {
  int64_t missing = 0;
  if (!HasRoomFor(sequence, found, missing)) return false;
  if (index_ == nullptr || !index_->has_tiers()) return true;
  const uint64_t owner = sequence.share->client;
  if (sequence.read_prefix_cache && !sequence.wants_all_rows) {
    // A snapshot is restored at once, but planned copies happen in the step. If no slot is free,
    // restoring could overwrite the source of a copy.
    if (!plan_.state_copies.empty() && states_->num_free() == 0) {
      plan_.moves_blocks = true;
      return false;
    }
    const int64_t most = (std::ssize(sequence.tokens) - 1) / limits_.block_size;
    const bool restored =
        index_->Restore(KeysOf(sequence), most, sequence.cache_salt, sequence.lookup, owner);
    if (!restored) {
      plan_.moves_blocks = true;
      return false;
    }
    found = FindPrefix(sequence);
    if (!HasRoomFor(sequence, found, missing)) return false;
  }
  plan_.moves_blocks = !index_->MakeRoom(sequence.lookup, found.blocks, missing, owner);
  return !plan_.moves_blocks;
}

bool Scheduler::TryAdmit(ScheduledSequence& sequence, Budget& budget) {
  const int64_t num_tokens = static_cast<int64_t>(sequence.tokens.size());
  const bool reads = index_ != nullptr && sequence.read_prefix_cache && !sequence.wants_all_rows;
  // The last token is always computed, because its logits are needed.
  const int64_t most_blocks = (num_tokens - 1) / limits_.block_size;
  PrefixIndex::Found found = FindPrefix(sequence);
  if (!MoveBlocks(sequence, found)) return false;
  const int64_t computed = found.blocks * limits_.block_size;
  sequence.planned = 0;
  const int64_t chunk = Chunk(sequence, computed, budget);
  if (chunk <= 0) return false;

  UseImages(sequence, computed, chunk, budget);
  if (index_ != nullptr) sequence.cursor = index_->Start(sequence.cache_salt);
  sequence.tokens.reserve(static_cast<size_t>(sequence.max_total_tokens));
  if (!sequence.keys.empty()) sequence.keys.reserve(static_cast<size_t>(sequence.max_total_tokens));
  sequence.blocks.Reserve(BlocksForTokens(sequence.max_total_tokens, limits_.block_size));
  if (reads) {
    CHECK_EQ(index_->Match(KeysOf(sequence), most_blocks, sequence.cache_salt, sequence.lookup,
                           sequence.cursor, sequence.blocks),
             found.blocks);
    if (!sequence.admitted_before && index_->has_tiers()) {
      const int64_t restored =
          std::min(found.blocks, sequence.lookup.num_restored_places) * limits_.block_size;
      plan_.tier_hits += restored;
      plan_.tier_queries += num_tokens - (computed - restored);
    }
    sequence.lookup = {};
  }
  if (states_ != nullptr) {
    const StateId from = computed > 0
                             ? index_->UseState(sequence.cursor.last_block, sequence.share->client)
                             : kNoState;
    sequence.held_state = states_->Take();
    CHECK(sequence.held_state.id() != kNoState, "{} sequences run, and hold all {} states",
          num_running(), states_->num_slots());
    // The slot may be the snapshot's own, if no other was free.
    if (from != kNoState && from != sequence.held_state.id())
      plan_.state_copies.push_back({.from = from, .to = sequence.held_state.id()});
    if (found.without_states > found.blocks)
      WantSnapshot(sequence, found.without_states * limits_.block_size);
  }
  sequence.num_computed = sequence.num_begun = computed;
  CHECK(TakeMissing(sequence, num_tokens));
  if (!sequence.admitted_before) {
    sequence.admitted_before = true;
    sequence.cached_tokens = computed;
    if (reads) {
      plan_.prefix_queries += num_tokens;
      plan_.prefix_hits += computed;
    }
  }
  WaitingQueue& waiting = sequence.share->waiting;
  waiting.Remove(sequence);
  sequence.rank = waiting.RankAt(sequence, now_us_);
  sequence.waited_us = now_us_ - sequence.waiting_since;
  --num_waiting_;
  sequence.state = ScheduledSequence::State::kRunning;
  running_.push_back(&sequence);
  ++sequence.share->num_running;
  PlanTokens(sequence, chunk, budget);
  shares_.Charge(*sequence.share, chunk);
  return true;
}

bool Scheduler::IsWanted(const PlannedSlice& slice) {
  return slice.sequence->state == ScheduledSequence::State::kRunning &&
         slice.sequence->num_preemptions == slice.num_preemptions;
}

void Scheduler::Commit(const PlannedSlice& slice) {
  if (IsWanted(slice)) Advance(*slice.sequence, slice.num_tokens - slice.num_proposed);
}

void Scheduler::CommitAllButLast(const PlannedSlice& slice) {
  if (!IsWanted(slice)) return;
  ScheduledSequence& sequence = *slice.sequence;
  CHECK(slice.samples);
  --sequence.num_begun;
  Advance(sequence, slice.num_tokens - slice.num_proposed - 1);
  // Followers do not wait for the token that is late.
  ReleaseFollowers(sequence, sequence.num_computed + 1);
  // The slot already has the states after that token.
  if (states_ != nullptr) GoBackToSnapshot(sequence);
}

void Scheduler::Commit() {
  for (const PlannedSlice& slice : plan_.slices) Commit(slice);
}

void Scheduler::AcceptProposed(ScheduledSequence& sequence) {
  ++sequence.num_begun;
  Advance(sequence, 1);
}

void Scheduler::Advance(ScheduledSequence& sequence, int64_t num_tokens) {
  const auto length = static_cast<size_t>(limits_.block_size);
  if (!sequence.keys.empty()) {
    const auto known = static_cast<ptrdiff_t>(sequence.keys.size());
    sequence.keys.insert(sequence.keys.end(), sequence.tokens.begin() + known,
                         sequence.tokens.end());
  }
  const std::span<const int32_t> tokens = KeysOf(sequence);
  sequence.num_computed += num_tokens;
  CHECK_LE(sequence.num_computed, std::min(sequence.num_begun, std::ssize(sequence.tokens)));
  while (index_ != nullptr &&
         (sequence.cursor.num_blocks + 1) * limits_.block_size <= sequence.num_computed) {
    index_->Insert(tokens.subspan(static_cast<size_t>(sequence.cursor.num_blocks) * length, length),
                   sequence.cache_salt, sequence.cursor, sequence.blocks);
  }
  if (states_ != nullptr && index_ != nullptr) KeepSnapshots(sequence);
  for (int64_t group = 0; group < num_groups(); ++group)
    sequence.blocks[group].DropFront(FirstBlock(group, sequence.num_computed));
  ReleaseFollowers(sequence, sequence.num_computed);
}

Status Scheduler::CheckInvariant() const {
  RETURN_IF_ERROR(pool_.CheckInvariant());
  int64_t references = 0, listed = 0;
  for (int64_t block = 0; block < pool_.num_blocks(); ++block) {
    references += pool_.references(static_cast<BlockId>(block));
  }
  for (const ScheduledSequence* sequence : running_) {
    listed += sequence->blocks.num_held();
    for (int64_t group = 0; group < num_groups(); ++group) {
      const BlockList& table = sequence->blocks[group];
      if (sequence->num_computed > table.size() * limits_.block_size ||
          table.num_absent() != FirstBlock(group, sequence->num_computed)) {
        return Fail(ErrorCode::kInternal,
                    fmt::format("{} of {} blocks of a sequence are absent with {} tokens computed",
                                table.num_absent(), table.size(), sequence->num_computed));
      }
      if (table.num_held() > most_blocks_[static_cast<size_t>(group)])
        return Fail(ErrorCode::kInternal, "a sequence holds more blocks than it can use");
    }
  }
  if (states_ != nullptr) {
    RETURN_IF_ERROR(states_->CheckInvariant());
    int64_t held = 0;
    for (const ScheduledSequence* sequence : running_) {
      if (sequence->held_state.id() == kNoState)
        return Fail(ErrorCode::kInternal, "a running sequence has no slot for its states");
      held += 1 + std::ssize(sequence->snapshots) + std::ssize(sequence->proposed_states);
    }
    if (held != states_->num_held()) {
      return Fail(ErrorCode::kInternal, fmt::format("{} states are held, {} by running sequences",
                                                    states_->num_held(), held));
    }
  }
  int64_t waiting = num_followers_;
  bool holds_blocks = false;
  ForEachWaiting([&](const ScheduledSequence& sequence) {
    ++waiting;
    holds_blocks = holds_blocks || sequence.blocks.num_held() > 0;
  });
  if (holds_blocks) return Fail(ErrorCode::kInternal, "a waiting sequence holds blocks");
  if (waiting != num_waiting_) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{} sequences wait, but {} are counted", waiting, num_waiting_));
  }
  if (references != listed) {
    return Fail(
        ErrorCode::kInternal,
        fmt::format("{} references to blocks, {} in running sequences", references, listed));
  }
  if (index_ == nullptr) return {};
  if (index_->num_indexed() < pool_.num_cached())
    return Fail(ErrorCode::kInternal, "a cached block is not in the index");
  return index_->CheckInvariant();
}

}  // namespace sluice
