// Finds one text in another in linear time for all inputs.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

// Searches for one needle, forwards for the first or backwards for the last occurrence. A search
// takes time linear in the needle and the text, and constant memory (the two-way algorithm of
// Crochemore and Perrin); a needle of up to 16 bytes is compared at each position.
//
// Thread safety: immutable. Ownership: the needle must outlive the object.
template <bool kBackwards>
class BasicTextSearcher {
 public:
  explicit BasicTextSearcher(std::string_view needle);

  // The offset of the first (backwards: last) occurrence in `text`; npos if there is none. An empty
  // needle is found at the end of `text` where the search begins.
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
