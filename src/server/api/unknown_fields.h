// Fields of request bodies that no route reads. As in vLLM they are no error; the log tells of each
// name once, since a misspelt field is otherwise found by nobody.
#pragma once

#include <set>
#include <string>

#include "base/json.h"
#include "base/mutex.h"

namespace sluice {

// Thread safety: Tell() may be called from any thread.
class UnknownFields {
 public:
  // Warns of the fields of `body` that are unknown and were not told before, in one line; "" where
  // there are none. Returns what was said. At most kMaxTold names are ever told.
  std::string Tell(const json::Value& body);

  static constexpr size_t kMaxTold = 256;

 private:
  Mutex mutex_;
  std::set<std::string, std::less<>> told_ GUARDED_BY(mutex_);
};

}  // namespace sluice
