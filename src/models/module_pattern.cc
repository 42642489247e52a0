#include "models/module_pattern.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_fields.h"

namespace sluice {

// Reads a pattern from left to right.
class ModulePattern::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<Sequence>> Whole() {
    ASSIGN_OR_RETURN(std::vector<Sequence> alternatives, Alternatives(0));
    if (!AtEnd()) return Unsupported("a ')' without a '('");
    return alternatives;
  }

 private:
  // Repeated groups inside each other, each of which multiplies the time of a match.
  static constexpr int kMaxDepth = 3;
  static constexpr int kMaxCount = 1000;

  bool AtEnd() const { return place_ == text_.size(); }
  bool Take(char c) {
    if (AtEnd() || text_[place_] != c) return false;
    ++place_;
    return true;
  }
  tl::unexpected<Error> Unsupported(std::string_view what) const {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} at character {} of the pattern {} is not read", what, place_,
                            ShortText(json::Value(text_))));
  }

  Result<std::vector<Sequence>> Alternatives(int depth) {
    if (depth > kMaxDepth) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the pattern {} has more than {} groups inside each other",
                              ShortText(json::Value(text_)), kMaxDepth));
    }
    std::vector<Sequence> alternatives;
    do {
      Sequence& sequence = alternatives.emplace_back();
      while (!AtEnd() && text_[place_] != '|' && text_[place_] != ')') {
        ASSIGN_OR_RETURN(Node node, One(depth));
        RETURN_IF_ERROR(ReadCount(node));
        sequence.push_back(std::move(node));
      }
    } while (Take('|'));
    return alternatives;
  }

  Result<Node> One(int depth) {
    Node node;
    const char c = text_[place_++];
    if (c == '(') {
      if (Take('?') && !Take(':')) return Unsupported("a group of another kind than (?:...)");
      node.kind = Node::Kind::kGroup;
      ASSIGN_OR_RETURN(node.alternatives, Alternatives(depth + 1));
      if (!Take(')')) return Unsupported("a '(' without a ')'");
    } else if (c == '^' || c == '$') {
      node.kind = c == '^' ? Node::Kind::kStart : Node::Kind::kEnd;
    } else if (c == '.') {
      node.characters.set();
    } else if (c == '[') {
      RETURN_IF_ERROR(ReadClass(node));
    } else if (c == '\\') {
      RETURN_IF_ERROR(ReadEscape(node));
    } else if (c == '*' || c == '+' || c == '?' || c == '{') {
      return Unsupported("a repetition of nothing");
    } else {
      node.characters.set(static_cast<unsigned char>(c));
    }
    return node;
  }

  static void AddRange(Node& node, char first, char last) {
    for (int c = static_cast<unsigned char>(first); c <= static_cast<unsigned char>(last); ++c)
      node.characters.set(static_cast<size_t>(c));
  }

  Status ReadEscape(Node& node) {
    if (AtEnd()) return Unsupported("a '\\' at the end");
    const char c = text_[place_++];
    if (c == 'd' || c == 'w') {
      AddRange(node, '0', '9');
      if (c == 'd') return {};
      AddRange(node, 'a', 'z');
      AddRange(node, 'A', 'Z');
      node.characters.set('_');
      return {};
    }
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_letter) return Unsupported(fmt::format("\\{}", c));
    node.characters.set(static_cast<unsigned char>(c));
    return {};
  }

  Status ReadClass(Node& node) {
    const bool is_negated = Take('^');
    bool is_first = true;
    while (!AtEnd() && (is_first || text_[place_] != ']')) {
      is_first = false;
      const char c = text_[place_++];
      if (c == '\\') {
        RETURN_IF_ERROR(ReadEscape(node));
      } else if (place_ + 1 < text_.size() && text_[place_] == '-' && text_[place_ + 1] != ']') {
        const char last = text_[place_ + 1];
        place_ += 2;
        if (last == '\\' || last < c) return Unsupported("a range of a class");
        AddRange(node, c, last);
      } else {
        node.characters.set(static_cast<unsigned char>(c));
      }
    }
    if (!Take(']')) return Unsupported("a '[' without a ']'");
    if (is_negated) node.characters.flip();
    return {};
  }

  // A number; -1 where there is none.
  int ReadNumber() {
    int number = -1;
    while (!AtEnd() && text_[place_] >= '0' && text_[place_] <= '9')
      number = std::min(kMaxCount + 1, std::max(number, 0) * 10 + (text_[place_++] - '0'));
    return number;
  }

  Status ReadCount(Node& node) {
    if (Take('*')) {
      node.least = 0, node.most = -1;
    } else if (Take('+')) {
      node.most = -1;
    } else if (Take('?')) {
      node.least = 0;
    } else if (Take('{')) {
      node.least = node.most = ReadNumber();
      if (Take(',')) {
        node.least = std::max(0, node.least);
        node.most = ReadNumber();
      }
      const bool is_count = node.least >= 0 && std::max(node.least, node.most) <= kMaxCount &&
                            (node.most < 0 || node.most >= node.least);
      if (!Take('}') || !is_count) return Unsupported("a count");
    } else {
      return {};
    }
    Take('?');  // Whether it is greedy is no matter.
    if (!AtEnd() && (text_[place_] == '*' || text_[place_] == '+' || text_[place_] == '{'))
      return Unsupported("a repetition of a repetition");
    return {};
  }

  std::string_view text_;
  size_t place_ = 0;
};

Result<ModulePattern> ModulePattern::Parse(std::string_view text) {
  if (text.empty() || text.size() > kMaxBytes) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a pattern has 1 to {} bytes, found {}", kMaxBytes, text.size()));
  }
  ModulePattern pattern;
  ASSIGN_OR_RETURN(pattern.alternatives_, Parser(text).Whole());
  return pattern;
}

ModulePattern::Places ModulePattern::EndsOnce(const Node& node, std::string_view name,
                                              const Places& from) {
  Places ends;
  switch (node.kind) {
    case Node::Kind::kStart: ends[0] = from[0]; break;
    case Node::Kind::kEnd: ends[name.size()] = from[name.size()]; break;
    case Node::Kind::kGroup: return Ends(node.alternatives, name, from);
    case Node::Kind::kCharacter:
      for (size_t i = 0; i < name.size(); ++i)
        ends[i + 1] = from[i] && node.characters[static_cast<unsigned char>(name[i])];
  }
  return ends;
}

ModulePattern::Places ModulePattern::Ends(const Sequence& sequence, std::string_view name,
                                          Places from) {
  for (const Node& node : sequence) {
    int count = 0;
    for (; count < node.least && from.any(); ++count) from = EndsOnce(node, name, from);
    Places last = from;
    for (; (node.most < 0 || count < node.most) && last.any(); ++count) {
      // Only what is new: a match of nothing ends the repetition.
      last = EndsOnce(node, name, last) & ~from;
      from |= last;
    }
    if (from.none()) break;
  }
  return from;
}

ModulePattern::Places ModulePattern::Ends(const std::vector<Sequence>& alternatives,
                                          std::string_view name, const Places& from) {
  Places ends;
  for (const Sequence& sequence : alternatives) ends |= Ends(sequence, name, from);
  return ends;
}

bool ModulePattern::Matches(std::string_view name) const {
  if (name.size() > kMaxName) return false;
  Places from;
  from[0] = true;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '.') from[i + 1] = true;
  }
  return Ends(alternatives_, name, from)[name.size()];
}

}  // namespace sluice
