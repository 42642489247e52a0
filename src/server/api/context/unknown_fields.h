// Detects fields of request bodies that no route reads. As in vLLM they are not an error; each name
// is logged once, so that misspelt fields are noticed.
#pragma once

#include <set>
#include <string>

#include "base/json.h"
#include "base/mutex.h"

namespace sluice {

// Thread safety: Warn() may be called from any thread.
class UnknownFields {
 public:
  // Logs a warning that lists the unknown fields of `body` that were not logged before, and returns
  // it; "" if there are none. Logs at most kMaxWarned names in total.
  std::string Warn(const json::Value& body);

  static constexpr size_t kMaxWarned = 256;

 private:
  Mutex mutex_;
  std::set<std::string, std::less<>> warned_ GUARDED_BY(mutex_);
};

}  // namespace sluice
