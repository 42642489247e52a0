#include "tokenizer/token_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sluice {

size_t TokenTable::Slot(std::string_view spelling) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = XXH3_64bits(spelling.data(), spelling.size()) & mask;
  while (slots_[slot] >= 0 && Spelling(slots_[slot]) != spelling) slot = (slot + 1) & mask;
  return slot;
}

void TokenTable::Grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, -1);
  for (size_t id = 0; id < entries_.size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (entries_[id].used) slots_[Slot(Spelling(token))] = token;
  }
}

TokenTable::AddResult TokenTable::Add(std::string_view spelling, int32_t id) {
  if (Has(id)) return AddResult::kIdTaken;
  if (size_ * 2 >= slots_.size()) Grow();
  const size_t slot = Slot(spelling);
  if (slots_[slot] >= 0) return AddResult::kSpellingTaken;
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(static_cast<size_t>(id) + 1);
  entries_[static_cast<size_t>(id)] = {arena_.size(), static_cast<uint32_t>(spelling.size()), true};
  arena_.append(spelling);
  slots_[slot] = id;
  ++size_;
  return AddResult::kAdded;
}

std::optional<int32_t> TokenTable::Find(std::string_view spelling) const {
  if (slots_.empty()) return std::nullopt;
  const int32_t id = slots_[Slot(spelling)];
  if (id < 0) return std::nullopt;
  return id;
}

std::string_view TokenTable::Spelling(int32_t id) const {
  if (!Has(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(entry.begin, entry.length);
}

}  // namespace sluice
