// Patterns of module names: the lists in quantization configurations (exact names, shell globs,
// regular expressions), and the keys in adapters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;  // declared as in pcre2.h

namespace sluice {

// A pattern. Matching does not backtrack: even for a malicious pattern, its time is proportional to
// the pattern size times the name length. Thread safety: immutable.
class NamePattern {
 public:
  // Compiles a pattern as in Python's fnmatch: * ? [abc] [!abc]. The whole name must match.
  static Result<NamePattern> Glob(std::string_view text);
  // Compiles, with PCRE2, a pattern as in Python's re.match, which matches from the start of the
  // name. kUnsupported for back references and for syntax that PCRE2 rejects or interprets
  // differently.
  static Result<NamePattern> Regex(std::string_view text);
  // Compiles a key of peft's rank_pattern and alpha_pattern: a regular expression that matches a
  // suffix of the name. The suffix starts at the name's start or after a dot. kUnsupported as for
  // Regex, for look-around, and for a pattern whose compiled size exceeds the memory for matching.
  // Source: peft utils/other.py, get_pattern_key: re.match(rf"(.*\.)?({key})$", name).
  static Result<NamePattern> PeftKey(std::string_view text);

  bool Matches(std::string_view name) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };

  NamePattern(std::string source, pcre2_real_code_8* code)
      : source_(std::move(source)), code_(code) {}
  // `source`: the pattern as written in the configuration, for error messages.
  static Result<NamePattern> Compile(std::string_view regex, std::string_view source);
  size_t CompiledBytes() const;

  std::string source_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// A list of modules by name or pattern. `module` is always the canonical name ("model.layers.0...",
// "lm_head"); entries are matched against all spellings that tools write
// ("language_model.model.layers.0...").
class ModuleList {
 public:
  enum class Syntax { kGlob, kRegexPrefix };  // kRegexPrefix: "re:..." is a regular expression

  // Adds an entry. With kRegexPrefix, "re:..." is a regular expression. An entry with * ? or [ is a
  // glob. Any other entry names a module and also matches all modules inside it. An error names the
  // entry.
  Status Add(std::string_view entry, Syntax syntax);
  Status Add(const std::vector<std::string>& entries, Syntax syntax);

  bool Contains(std::string_view module) const;
  bool empty() const { return names_.empty() && patterns_.empty(); }

 private:
  std::unordered_set<std::string> names_;
  std::vector<NamePattern> patterns_;
};

}  // namespace sluice
