// The lists of modules in quantization configurations: exact names, shell globs and regular
// expressions.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"

namespace sluice {

// One pattern, compiled to a nondeterministic automaton: matching takes time in proportion to
// pattern x name, whatever a foreign file asks for. Thread safety: constant.
class NamePattern {
 public:
  // Python's fnmatch: * ? [abc] [!abc]; the whole name must match.
  static Result<NamePattern> Glob(std::string_view text);
  // Python's re.match, from the start of the name on: . [] () | * + ? {m,n} ^ $ \d \w \s and
  // escaped characters. Anything else (groups with options, lookahead, references) is kUnsupported.
  static Result<NamePattern> Regex(std::string_view text);

  bool Matches(std::string_view name) const;

 private:
  friend class RegexCompiler;
  enum class Op : uint8_t { kSet, kSplit, kJump, kBegin, kEnd, kMatch };
  struct Step {
    Op op = Op::kMatch;
    int32_t first = 0, second = 0;  // relative targets of kSplit and kJump
    std::bitset<256> set = {};      // of kSet
  };
  using Program = std::vector<Step>;

  explicit NamePattern(Program program) : program_(std::move(program)) {}

  Program program_;
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
