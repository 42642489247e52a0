// Finds one text in another in linear time.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

// Searches forwards for the first, or backwards for the last, occurrence of one needle. A search
// takes time linear in needle and text, and constant memory (the two-way algorithm of Crochemore
// and Perrin). A needle of up to 16 bytes is compared at each position instead.
//
// Thread safety: immutable. Ownership: the needle must outlive the object.
template <bool kBackwards>
class BasicTextSearcher {
 public:
  explicit BasicTextSearcher(std::string_view needle);

  // Returns the offset of the first (backwards: last) occurrence in `text`, or npos. An empty
  // needle matches at offset 0 (backwards: at the end).
  size_t Find(std::string_view text) const;

 private:
  const std::string_view needle_;
  // The needle is split at `cut_`; after a full match of the right part, the search moves by
  // `shift_`.
  size_t cut_ = 0;
  size_t shift_ = 0;
  bool is_periodic_ = false;  // `shift_` is a period of the whole needle.
};

using TextSearcher = BasicTextSearcher</*kBackwards=*/false>;
using BackwardTextSearcher = BasicTextSearcher</*kBackwards=*/true>;

}  // namespace sluice
