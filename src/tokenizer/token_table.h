// The tokens of a vocabulary, found by id or by spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Limits for a tokenizer.json, far above published vocabularies.
inline constexpr int32_t kMaxTokenId = (1 << 22) - 1;
inline constexpr size_t kMaxTokenBytes = 1 << 16;
// A table has as many entries as the largest id needs. This limits the number of unused ids, so
// that a small file cannot cause a large allocation.
inline constexpr int32_t kMaxIdGap = 1 << 16;

// Stores all spellings in one string; the hash table contains only ids: 200,000 tokens take about 5
// MB. Thread safety: several threads may call const methods at the same time.
class TokenTable {
 public:
  enum class AddResult { kAdded, kIdTaken, kSpellingTaken };

  // REQUIRES: 0 <= id <= kMaxTokenId, spelling.size() <= kMaxTokenBytes.
  AddResult Add(std::string_view spelling, int32_t id);

  std::optional<int32_t> Find(std::string_view spelling) const;
  // Returns "" if the id is not in the table.
  std::string_view Spelling(int32_t id) const;
  bool Has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() && entries_[id].used;
  }
  // The largest id plus one.
  int32_t end_id() const { return static_cast<int32_t>(entries_.size()); }
  size_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t begin = 0;
    uint32_t length = 0;
    bool used = false;
  };

  // Returns the slot of `spelling`, or the free slot where it would be inserted.
  size_t Slot(std::string_view spelling) const;
  void Grow();

  std::string arena_;
  std::vector<Entry> entries_;  // Indexed by id.
  std::vector<int32_t> slots_;  // Hash table of ids, -1 if free; its size is a power of two, at
                                // most half of it is used.
  size_t size_ = 0;
};

}  // namespace sluice
