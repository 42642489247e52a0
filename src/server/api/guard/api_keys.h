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

// Limits of --api-key-file.
inline constexpr size_t kMaxApiKeyFileBytes = size_t{1} << 20;
inline constexpr size_t kMaxApiKeyBytes = 512;
inline constexpr size_t kMaxApiKeys = 10000;

// Stores only a SHA-256 of each key, hashed again with a random salt of the process, so that the
// time of a look-up reveals neither the keys nor their number.
// Thread safety: all methods may be called from any thread.
class ApiKeys {
 public:
  // Takes the non-empty keys of `keys`.
  explicit ApiKeys(const std::vector<std::string>& keys = {});
  // And those of `file`, unless it is "": one a line, "sha256:" and 64 hexadecimal digits in place
  // of a key that is not to stand there itself; blank lines and those that begin with # are
  // skipped. kInvalidArgument names --api-key-file, the file and the line; a file without a key is
  // refused, too, and one that others may read or write is warned about.
  static Result<std::shared_ptr<ApiKeys>> Load(const std::vector<std::string>& keys,
                                               const std::string& file);
  ~ApiKeys();
  ApiKeys(const ApiKeys&) = delete;
  ApiKeys& operator=(const ApiKeys&) = delete;

  bool Knows(std::string_view key) const;
  // Whether `text` is a key or has one in it: of keys that are shorter than 8 characters, which
  // words contain by chance, and of those given by their SHA-256, only if it is the whole text.
  bool FoundIn(std::string_view text) const;

  bool has_file() const { return !file_.empty(); }
  // Reads the file again. If it is unusable the keys stay as they were; the outcome is
  // logged.
  void Reload();

 private:
  struct Set;

  std::shared_ptr<const Set> set() const;

  const std::shared_ptr<const Set> fixed_;  // of the command line
  std::string file_;                        // set before it is shared
  mutable Mutex mutex_;
  std::shared_ptr<const Set> set_ GUARDED_BY(mutex_);
};

}  // namespace sluice
