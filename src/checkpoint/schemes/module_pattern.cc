#include "checkpoint/schemes/module_pattern.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "checkpoint/checkpoint.h"

namespace sluice {
namespace {

constexpr size_t kMaxPatternBytes = 4096;
constexpr size_t kMaxSteps = 8192;
constexpr int kMaxDepth = 32;
constexpr int kMaxRepeat = 64;

constexpr std::string_view kInner = "language_model.";
constexpr std::string_view kModel = "model.";
constexpr std::string_view kInnerModel = "model.language_model.";

std::array<std::string, 3> Spellings(std::string_view module) {
  std::array<std::string, 3> spellings = {std::string(module), std::string(kInner), ""};
  spellings[1] += module;
  if (module.starts_with(kModel)) {
    spellings[2] = kInnerModel;
    spellings[2] += module.substr(kModel.size());
  }
  return spellings;
}

}  // namespace

// Reads a regular expression by recursive descent; fragments have relative jumps, so that they can
// be joined and copied.
class RegexCompiler {
 public:
  explicit RegexCompiler(std::string_view text) : text_(text) {}

  Result<NamePattern> Compile() {
    ASSIGN_OR_RETURN(Program program, Alternatives(0));
    if (position_ != text_.size()) return Bad("an unmatched ')'");
    program.push_back({});
    return NamePattern(std::move(program));
  }

 private:
  using Program = NamePattern::Program;
  using Op = NamePattern::Op;
  using Step = NamePattern::Step;
  using Set = std::bitset<256>;

  tl::unexpected<Error> Bad(std::string_view what) const {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the pattern '{}' has {} at character {}, which is not supported",
                            text_, what, position_));
  }
  bool AtEnd() const { return position_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[position_]; }
  bool Consume(char c) {
    if (AtEnd() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  Result<Program> Alternatives(int depth) {
    if (depth > kMaxDepth) return Bad("groups nested too deeply");
    ASSIGN_OR_RETURN(Program left, Sequence(depth));
    while (Consume('|')) {
      ASSIGN_OR_RETURN(const Program right, Sequence(depth));
      Program both;
      both.push_back({Op::kSplit, 1, static_cast<int32_t>(left.size()) + 2});
      both.insert(both.end(), left.begin(), left.end());
      both.push_back({Op::kJump, static_cast<int32_t>(right.size()) + 1});
      both.insert(both.end(), right.begin(), right.end());
      left = std::move(both);
      if (left.size() > kMaxSteps) return Bad("too many alternatives");
    }
    return left;
  }

  Result<Program> Sequence(int depth) {
    Program program;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      ASSIGN_OR_RETURN(const Program atom, Atom(depth));
      ASSIGN_OR_RETURN(const Program repeated, Repeated(atom));
      program.insert(program.end(), repeated.begin(), repeated.end());
      if (program.size() > kMaxSteps) return Bad("too many repetitions");
    }
    return program;
  }

  Result<Program> Atom(int depth) {
    const char c = Peek();
    if (c == '(') {
      ++position_;
      if (Consume('?') && !Consume(':')) return Bad("a group with options or lookaround");
      ASSIGN_OR_RETURN(Program inside, Alternatives(depth + 1));
      if (!Consume(')')) return Bad("an unmatched '('");
      return inside;
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') return Bad("a repetition of nothing");
    if (c == '^' || c == '$') {
      ++position_;
      return Program{Step{c == '^' ? Op::kBegin : Op::kEnd}};
    }
    ASSIGN_OR_RETURN(const Set set, c == '[' ? Class() : Single());
    return Program{Step{Op::kSet, 0, 0, set}};
  }

  Result<Set> Single() {
    Set set;
    const char c = text_[position_++];
    if (c == '.') return set.set();
    if (c == '\\') return Escaped();
    set.set(static_cast<unsigned char>(c));
    return set;
  }

  // What follows a backslash.
  Result<Set> Escaped() {
    if (AtEnd()) return Bad("a backslash at the end");
    const char c = text_[position_++];
    Set set;
    for (int i = 0; i < 256; ++i) {
      const bool is_digit = i >= '0' && i <= '9';
      const bool is_letter = (i >= 'a' && i <= 'z') || (i >= 'A' && i <= 'Z');
      const bool is_space = i == ' ' || (i >= '\t' && i <= '\r');
      const bool is_in = c == 'd'   ? is_digit
                         : c == 'w' ? is_digit || is_letter || i == '_'
                         : c == 's' ? is_space
                                    : i == static_cast<unsigned char>(c);
      set.set(static_cast<size_t>(i), is_in);
    }
    const bool is_special =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_special && c != 'd' && c != 'w' && c != 's') return Bad("an unknown escape");
    return set;
  }

  Result<Set> Class() {
    ++position_;
    const bool negated = Consume('^') || (glob_ && Consume('!'));
    Set set;
    for (bool first = true;; first = false) {
      if (AtEnd()) return Bad("an unmatched '['");
      if (!first && Consume(']')) break;
      unsigned char low = static_cast<unsigned char>(text_[position_++]);
      if (low == '\\' && !glob_) {
        ASSIGN_OR_RETURN(const Set escaped, Escaped());
        set |= escaped;
        continue;
      }
      unsigned char high = low;
      if (position_ + 1 < text_.size() && text_[position_] == '-' && text_[position_ + 1] != ']') {
        high = static_cast<unsigned char>(text_[position_ + 1]);
        position_ += 2;
      }
      for (int i = low; i <= high; ++i) set.set(static_cast<size_t>(i));
    }
    return negated ? ~set : set;
  }

  Result<int> Number() {
    int value = 0;
    const size_t begin = position_;
    while (Peek() >= '0' && Peek() <= '9') {
      value = value * 10 + (text_[position_++] - '0');
      if (value > kMaxRepeat) return Bad("a count too large");
    }
    return position_ == begin ? -1 : value;
  }

  Result<Program> Repeated(const Program& atom) {
    const int32_t size = static_cast<int32_t>(atom.size());
    int min = 1, max = 1;  // max -1: without end
    if (Consume('*')) {
      min = 0, max = -1;
    } else if (Consume('+')) {
      max = -1;
    } else if (Consume('?')) {
      min = 0;
    } else if (Consume('{')) {
      ASSIGN_OR_RETURN(min, Number());
      if (min < 0) return Bad("a repetition without a count");
      max = min;
      if (Consume(',')) {
        ASSIGN_OR_RETURN(max, Number());
      }
      if (!Consume('}') || (max >= 0 && max < min)) return Bad("a malformed repetition");
    } else {
      return atom;
    }
    // A lazy repetition matches the same names.
    if (!Consume('?') && (Peek() == '+' || Peek() == '*'))
      return Bad("a repetition of a repetition");
    Program program;
    for (int i = 0; i < min; ++i) program.insert(program.end(), atom.begin(), atom.end());
    if (max < 0) {
      program.push_back({Op::kSplit, 1, size + 2});
      program.insert(program.end(), atom.begin(), atom.end());
      program.push_back({Op::kJump, -(size + 1)});
    }
    for (int i = min; i < max; ++i) {
      program.push_back({Op::kSplit, 1, size + 1});
      program.insert(program.end(), atom.begin(), atom.end());
    }
    if (program.size() > kMaxSteps) return Bad("too many repetitions");
    return program;
  }

 public:
  // The same for a glob.
  Result<NamePattern> CompileGlob() {
    glob_ = true;
    Program program;
    while (!AtEnd()) {
      Set set;
      if (Peek() == '*') {
        ++position_;
        program.push_back({Op::kSplit, 1, 3});
        program.push_back({Op::kSet, 0, 0, set.set()});
        program.push_back({Op::kJump, -2});
        continue;
      }
      if (Peek() == '?') {
        ++position_;
        set.set();
      } else if (Peek() == '[' && text_.find(']', position_ + 2) != std::string_view::npos) {
        ASSIGN_OR_RETURN(set, Class());
      } else {
        set.set(static_cast<unsigned char>(text_[position_++]));
      }
      program.push_back({Op::kSet, 0, 0, set});
    }
    program.push_back({Op::kEnd});
    program.push_back({});
    return NamePattern(std::move(program));
  }

 private:
  std::string_view text_;
  size_t position_ = 0;
  bool glob_ = false;
};

Result<NamePattern> NamePattern::Glob(std::string_view text) {
  if (text.size() > kMaxPatternBytes)
    return Fail(ErrorCode::kInvalidData, fmt::format("a pattern of {} bytes", text.size()));
  return RegexCompiler(text).CompileGlob();
}

Result<NamePattern> NamePattern::Regex(std::string_view text) {
  if (text.size() > kMaxPatternBytes)
    return Fail(ErrorCode::kInvalidData, fmt::format("a pattern of {} bytes", text.size()));
  return RegexCompiler(text).Compile();
}

bool NamePattern::Matches(std::string_view name) const {
  std::vector<int32_t> current, next, stack;
  std::vector<size_t> seen(program_.size(), SIZE_MAX);
  // Adds a step and all that is reached from it without taking a character.
  const auto add = [&](std::vector<int32_t>& set, int32_t start, size_t position) {
    stack.push_back(start);
    while (!stack.empty()) {
      const int32_t at = stack.back();
      stack.pop_back();
      if (seen[static_cast<size_t>(at)] == position) continue;
      seen[static_cast<size_t>(at)] = position;
      const Step& step = program_[static_cast<size_t>(at)];
      switch (step.op) {
        case Op::kSplit: stack.push_back(at + step.second); [[fallthrough]];
        case Op::kJump: stack.push_back(at + step.first); break;
        case Op::kBegin:
          if (position == 0) stack.push_back(at + 1);
          break;
        case Op::kEnd:
          if (position == name.size()) stack.push_back(at + 1);
          break;
        case Op::kSet:
        case Op::kMatch: set.push_back(at);
      }
    }
  };
  add(current, 0, 0);
  for (size_t position = 0;; ++position) {
    for (const int32_t at : current) {
      if (program_[static_cast<size_t>(at)].op == Op::kMatch) return true;
    }
    if (position == name.size() || current.empty()) return false;
    next.clear();
    for (const int32_t at : current) {
      if (program_[static_cast<size_t>(at)].set.test(static_cast<unsigned char>(name[position])))
        add(next, at + 1, position + 1);
    }
    std::swap(current, next);
  }
}

Status ModuleList::Add(std::string_view entry, Syntax syntax) {
  constexpr std::string_view kRegex = "re:";
  if (syntax == Syntax::kRegexPrefix && entry.starts_with(kRegex)) {
    ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Regex(entry.substr(kRegex.size())));
    patterns_.push_back(std::move(pattern));
  } else if (entry.find_first_of("*?[") != std::string_view::npos) {
    ASSIGN_OR_RETURN(NamePattern pattern, NamePattern::Glob(entry));
    patterns_.push_back(std::move(pattern));
  } else {
    names_.insert(CanonicalName(entry));
  }
  return {};
}

Status ModuleList::Add(const std::vector<std::string>& entries, Syntax syntax) {
  for (const std::string& entry : entries) RETURN_IF_ERROR(Add(entry, syntax));
  return {};
}

bool ModuleList::Contains(std::string_view module) const {
  for (std::string_view name = module; !names_.empty();) {
    if (names_.contains(std::string(name))) return true;
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) break;
    name = name.substr(0, dot);
  }
  if (patterns_.empty()) return false;
  const auto spellings = Spellings(module);
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const NamePattern& pattern) {
    return std::any_of(spellings.begin(), spellings.end(), [&](const std::string& spelling) {
      return !spelling.empty() && pattern.Matches(spelling);
    });
  });
}

}  // namespace sluice
