// The tokens of a vocabulary by id and by spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Limits of a file, far above those of published vocabularies.
inline constexpr int32_t kMaxTokenId = (1 << 22) - 1;
inline constexpr size_t kMaxTokenBytes = 1 << 16;
// Tables are as long as the largest id. This limits the total of unused ids, so that a small file
// cannot cause a large allocation.
inline constexpr int32_t kMaxIdGap = 1 << 16;

// Thread safety: const methods may be called by several threads at the same time. All spellings are
// in one string, and the hash table holds only ids: 200,000 tokens take about 5 MB.
class TokenTable {
 public:
  enum class AddResult { kAdded, kIdTaken, kSpellingTaken };

  // REQUIRES: 0 <= id <= kMaxTokenId, spelling.size() <= kMaxTokenBytes.
  AddResult Add(std::string_view spelling, int32_t id);

  std::optional<int32_t> Find(std::string_view spelling) const;
  // "" if the id is not in the table.
  std::string_view Spelling(int32_t id) const;
  bool Has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < entries_.size() && entries_[id].used;
  }
  // One past the largest id.
  int32_t end_id() const { return static_cast<int32_t>(entries_.size()); }
  size_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t begin = 0;
    uint32_t length = 0;
    bool used = false;
  };

  // The slot of `spelling`, or the free slot where it would be inserted.
  size_t Slot(std::string_view spelling) const;
  void Grow();

  std::string arena_;
  std::vector<Entry> entries_;  // By id.
  std::vector<int32_t> slots_;  // Ids by hash, -1 where free; a power of two, at most half full.
  size_t size_ = 0;
};

}  // namespace sluice
