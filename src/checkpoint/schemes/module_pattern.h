// Patterns of names of modules: the lists in quantization configurations (exact names, shell globs,
// regular expressions), and keys of adapters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;  // of pcre2.h

namespace sluice {

// One pattern. Matching does not backtrack: it takes time in proportion to pattern x name, whatever
// a foreign file asks for. Thread safety: constant.
class NamePattern {
 public:
  // Python's fnmatch: * ? [abc] [!abc]; the whole name must match.
  static Result<NamePattern> Glob(std::string_view text);
  // Python's re.match, from the start of the name on, by PCRE2. kUnsupported for references to
  // groups and for what PCRE2 refuses or reads in another way.
  static Result<NamePattern> Regex(std::string_view text);
  // A key of peft's rank_pattern and alpha_pattern: a regular expression of a name's end, the start
  // of which is the name's or after a dot. kUnsupported also for look-around and for what compiles
  // to more than a match of a module's name has memory for.
  // Source: peft utils/other.py, get_pattern_key: re.match(rf"(.*\.)?({key})$", name).
  static Result<NamePattern> PeftKey(std::string_view text);

  bool Matches(std::string_view name) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };

  NamePattern(std::string source, pcre2_real_code_8* code)
      : source_(std::move(source)), code_(code) {}
  // `source`: as the configuration has it, for messages.
  static Result<NamePattern> Compile(std::string_view regex, std::string_view source);
  size_t CompiledBytes() const;

  std::string source_;
  std::unique_ptr<pcre2_real_code_8, Free> code_;
};

// A list of modules by name or pattern. `module` is always the canonical name ("model.layers.0...",
// "lm_head"); entries are matched against all spellings that writers give it
// ("language_model.model.layers.0...").
class ModuleList {
 public:
  enum class Syntax { kGlob, kRegexPrefix };  // kRegexPrefix: "re:..." is a regular expression

  // Adds an entry: "re:..." is a regular expression under kRegexPrefix; with * ? or [ a glob; else
  // a name, which stands for the module and all inside it. An error names the entry.
  Status Add(std::string_view entry, Syntax syntax);
  Status Add(const std::vector<std::string>& entries, Syntax syntax);

  bool Contains(std::string_view module) const;
  bool empty() const { return names_.empty() && patterns_.empty(); }

 private:
  std::unordered_set<std::string> names_;
  std::vector<NamePattern> patterns_;
};

}  // namespace sluice
