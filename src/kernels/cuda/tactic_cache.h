// Which kernels were fastest for which product, measured once and kept in a file: which algorithm
// of a library, and whether that library at all, and how.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/result.h"

namespace sluice::device {

// What was chosen for one product: a library's algorithm, or one of several ways to compute it.
struct Tactic {
  std::array<uint64_t, 8> algorithm{};  // the library's own words; zeros where there is a way
  int64_t workspace_bytes = 0;
  std::string way = {};  // at most 40 characters; what it means its user knows
  double seconds = 0;    // of one product, as measured
};

// For what a file of tactics is good: anything else makes them worthless.
struct TacticOwner {
  std::string device;          // "NVIDIA H200"
  int compute_capability = 0;  // 90
  int64_t library_version = 0;
};

// Thread safety: one thread at a time.
class TacticCache {
 public:
  // More products than any model has; beyond that nothing is added.
  static constexpr size_t kMaxTactics = 8192;

  // Reads `path` (empty: nothing is read or written). A file that is not there makes an empty
  // cache; so does one that is damaged, or another device's, library's or program's: the log says
  // so, and Save replaces it.
  TacticCache(std::filesystem::path path, TacticOwner owner);

  // Null if there is none. `key`: the product, in words, at most 200 characters.
  const Tactic* Find(const std::string& key) const;
  void Put(const std::string& key, const Tactic& tactic);
  size_t size() const { return tactics_.size(); }

  // Writes the file if anything was Put since. The file is replaced atomically. When two processes
  // save at once, the results of one are lost.
  Status Save();

 private:
  Status Read(const std::string& text);
  std::string Write() const;

  std::filesystem::path path_;
  TacticOwner owner_;
  std::map<std::string, Tactic> tactics_;
  bool changed_ = false;
};

// The default file of tactics: sluice/tactics.json in XDG_CACHE_HOME or ~/.cache; empty where there
// is neither.
std::filesystem::path DefaultTacticsPath();

}  // namespace sluice::device
