#include "constraints/grammar_rules.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "constraints/grammar_text.h"

namespace sluice {
namespace {

// A token of a grammar: a name, punctuation, or 'x' for an element that matches characters.
struct RuleToken {
  char kind = 0;  // 'n': a name; 'e': an empty string; 'x'; 'd': the definition of rule `text`;
                  // else punctuation
  std::string_view text;
};

bool IsRuleNameCharacter(char c, bool is_lark) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
         (c == '.' && !is_lark);
}

class RuleLexer {
 public:
  RuleLexer(std::string_view text, bool is_lark) : text_(text), is_lark_(is_lark) {}

  std::vector<RuleToken> Run() {
    while (at_ < text_.size()) Step();
    return std::move(tokens_);
  }

 private:
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void Add(char kind, std::string_view text = {}) { tokens_.push_back({kind, text}); }

  // Moves past the closing `end`. Returns false if it is missing on this line (with `lines`: in the
  // text).
  bool SkipQuoted(char end, bool lines = false) {
    size_t i = at_ + 1;
    for (; i < text_.size() && text_[i] != end; ++i) {
      if (text_[i] == '\\') ++i;
      if (i < text_.size() && text_[i] == '\n' && !lines) break;
    }
    const bool is_closed = i < text_.size() && text_[i] == end;
    at_ = std::min(i + 1, text_.size());
    return is_closed;
  }

  // Skips flags that directly follow a string or a regex of Lark.
  void SkipFlags() {
    while (is_lark_ && std::isalpha(static_cast<unsigned char>(Peek())) != 0) ++at_;
  }

  void SkipLine() { at_ = std::min(text_.find('\n', at_), text_.size()); }

  // Skips the JSON value of a Lark directive.
  void SkipJson() {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = Peek();
      if (c == '"') {
        SkipQuoted('"', true);
      } else {
        ++at_;
        if (c == '{' || c == '[') ++depth;
        if ((c == '}' || c == ']') && --depth <= 0) return;
      }
      if (depth == 0 && std::isspace(static_cast<unsigned char>(c)) == 0 && c != '%') return;
    }
  }

  void Step() {
    const char c = Peek();
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at_;
    } else if (c == '#' || (is_lark_ && c == '/' && Peek(1) == '/')) {
      SkipLine();
    } else if (c == '"') {
      const bool is_empty = Peek(1) == '"';
      SkipQuoted('"');
      SkipFlags();
      Add(is_empty ? 'e' : 'x');
    } else if (c == '[' && !is_lark_) {
      SkipQuoted(']');
      Add('x');
    } else if (c == '/' && is_lark_) {
      SkipQuoted('/', true);
      SkipFlags();
      Add('x');
    } else if (c == '<' && is_lark_) {
      SkipQuoted('>');
      Add('x');
    } else if (c == '%' && is_lark_) {
      Directive();
    } else if (c == '-' && Peek(1) == '>') {
      at_ += 2;  // an alias; Name() skips its name
    } else if (IsRuleNameCharacter(c, is_lark_)) {
      Name();
    } else {
      ++at_;
      // `?name` and `!name` are also names in Lark.
      if ((c == '?' || c == '!') && is_lark_ &&
          (std::isalpha(static_cast<unsigned char>(Peek())) != 0 || Peek() == '_') && AtLineStart())
        return;
      if (std::string_view("()[]{}|*+?~,:=.@&").find(c) != std::string_view::npos) Add(c);
    }
  }

  // Returns whether the character before `at_` (`?` or `!`) is the first one on its line except for
  // blanks.
  bool AtLineStart() const {
    size_t i = at_ - 1;
    while (i > 0 && (text_[i - 1] == ' ' || text_[i - 1] == '\t')) --i;
    return i == 0 || text_[i - 1] == '\n' || text_[i - 1] == '\r';
  }

  void Directive() {
    const size_t begin = at_++;
    while (std::isalpha(static_cast<unsigned char>(Peek())) != 0 || Peek() == '_') ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "%json" || name == "%regex" || name == "%grammar_options") {
      SkipJson();
      Add('x');
    } else if (name == "%import" || name == "%declare") {
      SkipLine();
    } else {
      Add('d', name);  // ends the previous rule: this is %ignore or a nested grammar
    }
  }

  void Name() {
    const size_t begin = at_;
    while (IsRuleNameCharacter(Peek(), is_lark_)) {
      if (Peek() == '-' && Peek(1) == '>') break;
      ++at_;
    }
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (IsAlias(begin)) return;
    const size_t defined = is_lark_ ? EndOfLarkHead() : EndOfHead();
    if (defined != 0) at_ = defined;
    Add(defined != 0 ? 'd' : 'n', name);
  }

  bool IsAlias(size_t begin) const {
    const size_t last = text_.substr(0, begin).find_last_not_of(" \t");
    return last != std::string_view::npos && text_.substr(0, last + 1).ends_with("->");
  }
  size_t SkipBlanks(size_t i) const {
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) ++i;
    return i;
  }
  size_t SkipAttributes(size_t i) const {
    if (i >= text_.size() || text_[i] != '[') return i;
    const size_t end = text_.substr(i, text_.find('\n', i) - i).find(']');
    return end == std::string_view::npos ? i : i + end + 1;
  }
  // Returns the position after "::=" if the name before `at_` is being defined; else 0.
  size_t EndOfHead() const {
    size_t i = at_;
    while (i < text_.size() && std::isspace(static_cast<unsigned char>(text_[i])) != 0) ++i;
    if (i == at_) i = SkipBlanks(SkipAttributes(i));
    return text_.substr(i).starts_with("::=") ? i + 3 : 0;
  }
  // Returns the position after ":" if the name before `at_` is being defined in Lark; else 0.
  // Priority, attributes or parameters may precede the colon.
  size_t EndOfLarkHead() const {
    size_t i = SkipBlanks(at_);
    if (i < text_.size() && text_[i] == '.') {
      for (++i; i < text_.size() && std::isdigit(static_cast<unsigned char>(text_[i])) != 0;) ++i;
    }
    if (i < text_.size() && text_[i] == '{') {
      const size_t end = text_.find('}', i);
      if (end == std::string_view::npos) return 0;
      i = end + 1;
    }
    i = SkipBlanks(SkipAttributes(SkipBlanks(i)));
    if (i >= text_.size() || text_[i] != ':' || text_.substr(i).starts_with("::")) return 0;
    return i + 1;
  }

  const std::string_view text_;
  const bool is_lark_;
  size_t at_ = 0;
  std::vector<RuleToken> tokens_;
};

// An element of a rule. `parts` contains indices into RuleReader's nodes.
struct RuleNode {
  enum class Kind { kCharacters, kEmpty, kRule, kSequence, kChoice, kRepeat } kind;
  size_t rule = 0;
  int64_t least = 0;  // only for kRepeat
  std::vector<size_t> parts;
};

class RuleReader {
 public:
  RuleReader(std::vector<RuleToken> tokens, bool is_lark)
      : tokens_(std::move(tokens)), is_lark_(is_lark) {}

  Status Read() {
    for (const RuleToken& token : tokens_) {
      if (token.kind == 'd' && rules_.try_emplace(token.text, names_.size()).second)
        names_.push_back(token.text);
    }
    bodies_.resize(names_.size());
    while (at_ < tokens_.size()) {
      if (tokens_[at_].kind != 'd') {
        ++at_;
        continue;
      }
      const size_t rule = rules_.at(tokens_[at_++].text);
      ASSIGN_OR_RETURN(const size_t body, Choice(0));
      bodies_[rule].push_back(body);
    }
    return {};
  }

  Status CheckCycles() {
    FindNullable();
    edges_.assign(names_.size(), {});
    for (size_t rule = 0; rule < names_.size(); ++rule) {
      for (const size_t body : bodies_[rule]) AddDerived(body, edges_[rule]);
    }
    RETURN_IF_ERROR(FailOnCycle("derives itself without a character in between"));
    edges_.assign(names_.size(), {});
    for (size_t rule = 0; rule < names_.size(); ++rule) {
      for (const size_t body : bodies_[rule]) AddSole(body, edges_[rule]);
    }
    return FailOnCycle("repeats itself without end");
  }

 private:
  using Kind = RuleNode::Kind;

  bool Is(char kind) const { return at_ < tokens_.size() && tokens_[at_].kind == kind; }
  size_t Make(RuleNode node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  Result<size_t> Choice(int depth) {
    RuleNode choice{Kind::kChoice, 0, 0, {}};
    do {
      ASSIGN_OR_RETURN(const size_t sequence, Sequence(depth));
      choice.parts.push_back(sequence);
    } while (Take('|'));
    return Make(std::move(choice));
  }

  bool Take(char kind) {
    if (!Is(kind)) return false;
    ++at_;
    return true;
  }

  Result<size_t> Sequence(int depth) {
    RuleNode sequence{Kind::kSequence, 0, 0, {}};
    while (at_ < tokens_.size() && !Is('|') && !Is('d') && !Is(')') && !Is(']')) {
      ASSIGN_OR_RETURN(size_t element, Element(depth));
      int64_t least = 1;
      bool is_repeated = false;
      // One node represents all repetitions that follow. So the depth of nodes is at most the depth
      // of the brackets.
      while (const std::optional<int64_t> next = Repetition()) {
        is_repeated = true;
        least = std::min<int64_t>(least * std::min<int64_t>(*next, 2), 2);
      }
      if (is_repeated) element = Make({Kind::kRepeat, 0, least, {element}});
      sequence.parts.push_back(element);
    }
    return Make(std::move(sequence));
  }

  // Returns the minimum count of a repetition, if one follows.
  std::optional<int64_t> Repetition() {
    if (Take('*') || Take('?')) return 0;
    if (Take('+')) return 1;
    if (is_lark_ && Take('~')) {
      const int64_t least = Count();
      while (Take('.')) {
      }
      Count();
      return least;
    }
    if (!Take('{')) return std::nullopt;
    // Names in braces are arguments of a template and repeat nothing.
    const bool repeats = Is(',') || IsCount();
    const int64_t least = repeats ? Count() : 1;
    while (at_ < tokens_.size() && !Is('}') && !Is('d')) ++at_;
    Take('}');
    return least;
  }
  bool IsCount() const {
    return Is('n') && std::isdigit(static_cast<unsigned char>(tokens_[at_].text[0])) != 0;
  }
  int64_t Count() {
    int64_t count = 0;
    if (!IsCount()) return count;
    const std::string_view digits = tokens_[at_++].text;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    return read.ec == std::errc() ? count : 2;  // all counts of 2 and more are equivalent
  }

  Result<size_t> Element(int depth) {
    const RuleToken token = tokens_[at_++];
    if (token.kind == '(' || token.kind == '[') {
      if (depth + 1 > kMaxConstraintDepth) {
        return Fail(
            ErrorCode::kInvalidArgument,
            fmt::format("the grammar has more than {} nested brackets", kMaxConstraintDepth));
      }
      const bool looks_ahead = token.kind == '(' && Take('=');
      ASSIGN_OR_RETURN(const size_t group, Choice(depth + 1));
      Take(token.kind == '(' ? ')' : ']');
      if (looks_ahead) return Make({Kind::kEmpty, 0, 0, {}});
      return token.kind == '(' ? group : Make({Kind::kRepeat, 0, 0, {group}});
    }
    if (token.kind == 'e') return Make({Kind::kEmpty, 0, 0, {}});
    if (token.kind == 'n') {
      const auto rule = rules_.find(token.text);
      if (rule != rules_.end()) return Make({Kind::kRule, rule->second, 0, {}});
    }
    // Punctuation of the grammar itself consumes no input; any other token may match characters.
    const bool is_empty = std::string_view(",:=.").find(token.kind) != std::string_view::npos;
    return Make({is_empty ? Kind::kEmpty : Kind::kCharacters, 0, 0, {}});
  }

  // Finds the nodes that can match nothing. Takes time linear in the nodes: a node that becomes
  // nullable updates the node that contains it or, as the body of a rule, the nodes that name the
  // rule.
  void FindNullable() {
    constexpr size_t kNone = ~size_t{0};
    std::vector<size_t> whole_of(nodes_.size(), kNone), rule_of(nodes_.size(), kNone);
    std::vector<std::vector<size_t>> uses(names_.size());
    std::vector<size_t> num_taking(nodes_.size());  // for a sequence: number of parts not yet
                                                    // nullable
    std::vector<size_t> found;
    const auto find = [&](size_t index) {
      if (nullable_[index]) return;
      nullable_[index] = true;
      found.push_back(index);
    };
    nullable_.assign(nodes_.size(), false);
    for (size_t rule = 0; rule < names_.size(); ++rule) {
      for (const size_t body : bodies_[rule]) rule_of[body] = rule;
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const RuleNode& node = nodes_[i];
      for (const size_t part : node.parts) whole_of[part] = i;
      num_taking[i] = node.parts.size();
      if (node.kind == Kind::kRule) uses[node.rule].push_back(i);
      if (node.kind == Kind::kEmpty || (node.kind == Kind::kSequence && node.parts.empty()) ||
          (node.kind == Kind::kRepeat && node.least == 0))
        find(i);
    }
    while (!found.empty()) {
      const size_t index = found.back();
      found.pop_back();
      const size_t whole = whole_of[index];
      if (whole != kNone && (nodes_[whole].kind != Kind::kSequence || --num_taking[whole] == 0))
        find(whole);
      if (rule_of[index] != kNone) std::ranges::for_each(uses[rule_of[index]], find);
    }
  }

  // Adds each rule that can match everything that the node matches, because the rest of the node
  // can be empty.
  void AddDerived(size_t index, std::vector<size_t>& rules) const {
    const RuleNode& node = nodes_[index];
    if (node.kind == Kind::kRule) rules.push_back(node.rule);
    if (node.kind == Kind::kRepeat && node.least > 1 && !nullable_[node.parts[0]]) return;
    const auto num_taking =
        node.kind == Kind::kSequence
            ? std::ranges::count_if(node.parts, [&](size_t part) { return !nullable_[part]; })
            : 0;
    if (num_taking > 1) return;
    for (const size_t part : node.parts) {
      if (num_taking == 0 || !nullable_[part]) AddDerived(part, rules);
    }
  }

  // If the node consists of a single rule, repeated or not, adds that rule.
  void AddSole(size_t index, std::vector<size_t>& rules) const {
    const RuleNode& node = nodes_[index];
    if (node.kind == Kind::kRule) rules.push_back(node.rule);
    if (node.parts.size() == 1) AddSole(node.parts[0], rules);
  }

  // Searches depth first, without recursion: there may be a hundred thousand rules.
  Status FailOnCycle(std::string_view what) const {
    enum State : char { kNew, kOpen, kDone };
    std::vector<State> states(names_.size(), kNew);
    std::vector<std::pair<size_t, size_t>> path;  // a rule, and its next edge to follow
    for (size_t first = 0; first < names_.size(); ++first) {
      if (states[first] != kNew) continue;
      path.assign(1, {first, 0});
      states[first] = kOpen;
      while (!path.empty()) {
        auto& [rule, edge] = path.back();
        if (edge == edges_[rule].size()) {
          states[rule] = kDone;
          path.pop_back();
          continue;
        }
        const size_t next = edges_[rule][edge++];
        if (states[next] == kOpen) return Cycle(path, next, what);
        if (states[next] == kDone) continue;
        states[next] = kOpen;
        path.emplace_back(next, 0);
      }
    }
    return {};
  }
  Status Cycle(std::span<const std::pair<size_t, size_t>> path, size_t rule,
               std::string_view what) const {
    constexpr size_t kMostNames = 8;
    std::vector<std::string_view> names;
    for (const auto& [passed, edge] : path) {
      if (passed == rule || !names.empty()) names.push_back(names_[passed].substr(0, 60));
    }
    if (names.size() > kMostNames) {
      names.resize(kMostNames);
      names.emplace_back("...");
    }
    names.push_back(names_[rule].substr(0, 60));
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the rule `{}` {} ({}); every path from a rule back to itself must "
                            "consume at least one character",
                            names_[rule].substr(0, 60), what, fmt::join(names, " -> ")));
  }

  const std::vector<RuleToken> tokens_;
  const bool is_lark_;
  size_t at_ = 0;
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, size_t> rules_;
  std::vector<std::vector<size_t>> bodies_;  // indexed by rule: the nodes of the rule; several if
                                             // it is defined again.
  std::vector<RuleNode> nodes_;
  std::vector<bool> nullable_;              // indexed by node
  std::vector<std::vector<size_t>> edges_;  // indexed by rule: the rules to which it leads
};

}  // namespace

Status CheckGrammarRules(ConstraintKind kind, std::string_view grammar) {
  const bool is_lark = kind == ConstraintKind::kLark;
  RuleReader reader(RuleLexer(grammar, is_lark).Run(), is_lark);
  RETURN_IF_ERROR(reader.Read());
  return reader.CheckCycles();
}

}  // namespace sluice
