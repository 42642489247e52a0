// Looks for stop strings in text that comes piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/shared_list.h"

namespace sluice {

struct StopRules {
  SharedList<std::string> strings;  // not empty ones
  bool include_in_output = false;
  int64_t min_tokens = 0;  // text of the first so many tokens is not searched
};

// The first stop string that is complete ends the text where it starts (where it ends, with
// `include_in_output`). Not thread-safe. Memory: the text that has not been taken, and as much
// before it as the longest stop string.
class StopSearch {
 public:
  explicit StopSearch(StopRules rules);

  // The stop string that `text` completes, if any: nothing may be added after it. `searched`: a
  // stop string may end inside `text`.
  std::optional<std::string> Add(std::string_view text, bool searched);

  // The text since the last call, without characters that may be the start of a stop string.
  std::string Take();
  // All of it. A stop string that begins before this point does not end after it.
  std::string TakeAll();

  int64_t min_tokens() const { return rules_.min_tokens; }

 private:
  void Search(size_t new_bytes, std::optional<std::string>& match);
  std::string TakeUntil(size_t end);

  const StopRules rules_;
  size_t held_characters_ = 0;
  size_t longest_stop_bytes_ = 0;
  std::string text_;
  size_t taken_ = 0;  // bytes of text_ that were given out
  bool matched_ = false;
};

}  // namespace sluice
