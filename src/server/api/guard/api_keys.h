// The API keys that a server accepts.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"

namespace sluice {

// Limits for --api-key-file.
inline constexpr size_t kMaxApiKeyFileBytes = size_t{1} << 20;
inline constexpr size_t kMaxApiKeyBytes = 512;
inline constexpr size_t kMaxApiKeys = 10000;

// Stores only a SHA-256 of each key, hashed again with a random salt of the process. So the time of
// a look-up does not reveal the keys or their number. Thread safety: all methods may be called from
// any thread.
class ApiKeys {
 public:
  // Accepts all non-empty `keys`.
  explicit ApiKeys(const std::vector<std::string>& keys = {});
  // Also accepts the keys in `file`, unless it is "". Each line is a key, or "sha256:" and 64
  // hexadecimal digits, which keeps the key itself out of the file. Blank lines and lines that
  // begin with # are skipped. kInvalidArgument, which names --api-key-file, the file and the line,
  // for an invalid line; also for a file without a key. Logs a warning if other users may read or
  // write the file.
  static Result<std::shared_ptr<ApiKeys>> Load(const std::vector<std::string>& keys,
                                               const std::string& file);
  ~ApiKeys();
  ApiKeys(const ApiKeys&) = delete;
  ApiKeys& operator=(const ApiKeys&) = delete;

  bool Knows(std::string_view key) const;
  // Whether `text` is or contains a key. Some keys are found only if they are the whole text: those
  // given by their SHA-256, and those shorter than 8 characters, which words may contain by chance.
  bool FoundIn(std::string_view text) const;

  bool has_file() const { return !file_.empty(); }
  // Reads the file again. If it is unusable, the keys remain unchanged. Logs the outcome.
  void Reload();

 private:
  struct Set;

  std::shared_ptr<const Set> set() const;

  const std::shared_ptr<const Set> fixed_;  // keys from the command line
  std::string file_;                        // set before the object is shared
  mutable Mutex mutex_;
  std::shared_ptr<const Set> set_ GUARDED_BY(mutex_);
};

}  // namespace sluice
