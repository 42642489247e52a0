// Patterns of module names, as peft's rank_pattern and alpha_pattern have them.
#pragma once

#include <bitset>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

// A regular expression that a name, or its end behind a dot, must match: literals, ".", classes
// [...], \d and \w, groups, "|", "*", "+", "?", "{n}", "{n,m}", "^" and "$".
// Source: peft utils/other.py, get_pattern_key.
class ModulePattern {
 public:
  // kUnsupported names what is none of the above; kInvalidArgument a pattern that is longer than
  // kMaxBytes or nested too deeply.
  static Result<ModulePattern> Parse(std::string_view text);
  static constexpr size_t kMaxBytes = 512;

  // In time of a polynomial of the lengths. False for a name of more than kMaxName bytes.
  bool Matches(std::string_view name) const;
  static constexpr size_t kMaxName = 511;

 private:
  class Parser;
  // Places in a name.
  using Places = std::bitset<kMaxName + 1>;

  struct Node;
  using Sequence = std::vector<Node>;
  struct Node {
    enum class Kind { kCharacter, kGroup, kStart, kEnd } kind = Kind::kCharacter;
    std::bitset<256> characters = {};
    std::vector<Sequence> alternatives = {};
    int least = 1;
    int most = 1;  // -1: any number
  };

  // The places where a match ends that begins at one of `from`.
  static Places Ends(const Sequence& sequence, std::string_view name, Places from);
  static Places Ends(const std::vector<Sequence>& alternatives, std::string_view name,
                     const Places& from);
  static Places EndsOnce(const Node& node, std::string_view name, const Places& from);

  std::vector<Sequence> alternatives_;
};

}  // namespace sluice
