// Caches the fastest way to compute each product: whether and how to use a library, and which of
// its algorithms. Each product is measured once; the results are stored in a file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace sluice::device {

// The choice for one product: a library's algorithm, or one of several ways to compute it.
struct Tactic {
  std::array<uint64_t, 8> algorithm{};  // in the library's format; zeros if `way` is set
  int64_t workspace_bytes = 0;
  std::string way = {};  // at most 40 characters; defined by the caller
  double seconds = 0;    // per product, as measured
};

// The device and the library for which a file of tactics is valid.
struct TacticOwner {
  std::string device;          // "NVIDIA H200"
  int compute_capability = 0;  // 90
  int64_t library_version = 0;
};

// Thread safety: one thread at a time.
class TacticCache {
 public:
  // Maximum number of tactics, which is more than any model needs. Further tactics are not added.
  static constexpr size_t kMaxTactics = 8192;

  // Reads `path` (empty: nothing is read or written). If the file is missing, the cache is empty. A
  // file that is damaged or belongs to another device, library or program is logged and ignored,
  // and Save replaces it.
  TacticCache(std::filesystem::path path, TacticOwner owner);

  // Returns null if there is no tactic. `key`: describes the product, at most 200 characters.
  const Tactic* Find(const std::string& key) const;
  void Put(const std::string& key, const Tactic& tactic);
  size_t size() const { return tactics_.size(); }

  // Writes the file if Put was called since the last Save. The file is replaced atomically. If two
  // processes save at the same time, the results of one are lost.
  Status Save();

 private:
  Status Read(const std::string& text);
  std::string Write() const;

  std::filesystem::path path_;
  TacticOwner owner_;
  std::map<std::string, Tactic> tactics_;
  bool changed_ = false;
};

// Returns the default file of tactics: sluice/tactics.json in XDG_CACHE_HOME or ~/.cache; empty if
// neither is known.
std::filesystem::path DefaultTacticsPath();

}  // namespace sluice::device
