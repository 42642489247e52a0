// Fields of request bodies that no route reads. As in vLLM they are no error; each name is logged
// once, so that misspelt fields are noticed.
#pragma once

#include <set>
#include <string>

#include "base/json.h"
#include "base/mutex.h"

namespace sluice {

// Thread safety: Tell() may be called from any thread.
class UnknownFields {
 public:
  // Logs one warning for the unknown fields of `body` that have not been logged before, and returns
  // it; "" if there are none. At most kMaxTold names are logged in all.
  std::string Tell(const json::Value& body);

  static constexpr size_t kMaxTold = 256;

 private:
  Mutex mutex_;
  std::set<std::string, std::less<>> told_ GUARDED_BY(mutex_);
};

}  // namespace sluice
