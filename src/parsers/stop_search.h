// Finds stop strings in text that arrives in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/shared_list.h"

namespace sluice {

struct StopRules {
  SharedList<std::string> strings;  // none of them is empty
  bool include_in_output = false;
  int64_t min_tokens = 0;  // the text of the first `min_tokens` tokens is not searched
};

// The stop string that is completed first ends the text, at its beginning or, with
// `include_in_output`, at its end. Stores the text that has not been taken and, before it, as many
// bytes as the longest stop string has. Thread safety: one thread.
class StopSearch {
 public:
  explicit StopSearch(StopRules rules);

  // Appends `text`. Returns the stop string that it completes, if any; Add must not be called again
  // after that. `searched`: whether a stop string may end inside `text`.
  std::optional<std::string> Add(std::string_view text, bool searched);

  // Returns the text since the last call, but holds back a possible beginning of a stop string.
  std::string Take();
  // Returns all text since the last call. Stop strings that span this point are not found.
  std::string TakeAll();

  int64_t min_tokens() const { return rules_.min_tokens; }

 private:
  void Search(size_t new_bytes, std::optional<std::string>& match);
  std::string TakeUntil(size_t end);

  const StopRules rules_;
  size_t held_characters_ = 0;
  size_t longest_stop_bytes_ = 0;
  std::string text_;
  size_t taken_ = 0;  // number of bytes of text_ that were returned
  bool matched_ = false;
};

}  // namespace sluice
