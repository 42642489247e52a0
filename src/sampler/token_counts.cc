#include "sampler/token_counts.h"

#include <algorithm>

namespace sluice {
namespace {

size_t Slot(int32_t token, size_t num_slots) {
  return (static_cast<uint32_t>(token) * size_t{0x9E3779B1}) & (num_slots - 1);
}

}  // namespace

void TokenCounts::Update(std::span<const int32_t> tokens, int64_t num_prompt_tokens) {
  for (; num_counted_ < tokens.size(); ++num_counted_) {
    Entry& entry = Find(tokens[num_counted_]);
    if (static_cast<int64_t>(num_counted_) < num_prompt_tokens) {
      entry.in_prompt = true;
    } else {
      ++entry.in_output;
    }
  }
}

TokenCounts::Entry& TokenCounts::Find(int32_t token) {
  if (slots_.size() < 2 * (entries_.size() + 1)) Grow();
  size_t slot = Slot(token, slots_.size());
  while (slots_[slot] >= 0) {
    Entry& entry = entries_[static_cast<size_t>(slots_[slot])];
    if (entry.token == token) return entry;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  slots_[slot] = static_cast<int32_t>(entries_.size());
  return entries_.emplace_back(Entry{token, 0, false});
}

void TokenCounts::Grow() {
  slots_.assign(std::max<size_t>(64, slots_.size() * 2), -1);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = Slot(entries_[i].token, slots_.size());
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = static_cast<int32_t>(i);
  }
}

}  // namespace sluice
