#include "tokenizer/regex_syntax.h"

#include <optional>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenizer/code_point_set.h"
#include "tokenizer/unicode.h"

namespace sluice {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
constexpr int kMaxDepth = 64;
constexpr uint32_t kMaxRepeat = 1000;
constexpr size_t kAtomsBetweenReports = 32;

bool IsAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> Run() {
    if (in_.size() > kMaxPatternBytes)
      return Unsupported(fmt::format("more than {} bytes", kMaxPatternBytes));
    if (!IsValidUtf8(in_)) return Unsupported("bytes that are not UTF-8");
    RETURN_IF_ERROR(Alternatives(0));
    if (at_ != in_.size()) return Unsupported("an unmatched )");
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> Unsupported(std::string_view what) const {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("split pattern '{}' has {} at byte {}: not supported",
                            in_.substr(0, 200), what, at_));
  }

  bool More() const { return at_ < in_.size(); }
  bool LooksAt(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  bool Take(std::string_view text) {
    if (!LooksAt(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t TakeCodePoint() {
    const unicode::Decoded decoded = unicode::Decode(in_.data() + at_);
    at_ += decoded.length;
    return decoded.code_point;
  }

  // Translates alternatives up to the end or to an unmatched ')'.
  Status Alternatives(int depth) {
    if (depth > kMaxDepth) return Unsupported("groups nested too deep");
    while (More() && !LooksAt(")")) {
      if (Take("|")) {
        out_ += '|';
        continue;
      }
      const bool is_group = LooksAt("(");
      const size_t start = out_.size();
      ASSIGN_OR_RETURN(const bool repeatable, Atom(depth));
      if (!repeatable) continue;
      const size_t end = out_.size();
      RETURN_IF_ERROR(Quantifiers(start));
      // Inserts a callout, with which the matcher reports its position: after everything that
      // backtracking can repeat, and at intervals in between. So the unreported work is limited by
      // the pattern's length.
      if (is_group || out_.size() != end || ++atoms_ % kAtomsBetweenReports == 0) out_ += "(?C)";
    }
    return {};
  }

  // Translates an atom. Returns false if it cannot be repeated (an option setting).
  Result<bool> Atom(int depth) {
    if (LooksAt("(")) return Group(depth);
    if (LooksAt("[")) {
      ++at_;
      bool negated = false;
      ASSIGN_OR_RETURN(const CodePointSet set, Class(depth, negated));
      EmitSet(set, negated);
      return true;
    }
    if (Take(".")) {
      out_ += '.';
      return true;
    }
    if (Take("^")) {
      out_ += '^';
      return true;
    }
    if (Take("$")) {
      out_ += '$';
      return true;
    }
    if (LooksAt("\\")) return Escape();
    if (LooksAt("*") || LooksAt("+") || LooksAt("?"))
      return Unsupported("a quantifier without anything before it");
    EmitLiteral(TakeCodePoint());
    return true;
  }

  Result<bool> Group(int depth) {
    static constexpr std::string_view kOpenings[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (const std::string_view opening : kOpenings) {
      if (!Take(opening)) continue;
      out_ += opening;
      return Body(depth);
    }
    if (Take("(?#")) {
      while (More() && !LooksAt(")")) ++at_;
      if (!Take(")")) return Unsupported("an unmatched (");
      return false;
    }
    if (Take("(?")) {
      std::string flags;
      while (More() && (LooksAt("i") || LooksAt("m") || LooksAt("-"))) {
        // Oniguruma's option m, which lets the dot match newlines, is s in PCRE2.
        flags += in_[at_] == 'm' ? 's' : in_[at_];
        ++at_;
      }
      if (Take(")")) {
        // A setting applies up to the end of its group. In Oniguruma a|(?i)b|c means a|(?i:b|c). In
        // PCRE2 it means the same only if nothing precedes the setting.
        if (!out_.empty() && in_.find('|') != std::string_view::npos) {
          return Unsupported("an option setting between alternatives");
        }
        out_ += "(?" + flags + ")";
        return false;
      }
      if (!Take(":")) return Unsupported("a kind of group '(?' that is not known");
      out_ += "(?" + flags + ":";
      return Body(depth);
    }
    ++at_;
    out_ += "(?:";  // Captures are not used, so all groups are non-capturing.
    return Body(depth);
  }

  Result<bool> Body(int depth) {
    RETURN_IF_ERROR(Alternatives(depth + 1));
    if (!Take(")")) return Unsupported("an unmatched (");
    out_ += ')';
    return true;
  }

  Status Quantifiers(size_t start) {
    for (bool first = true;; first = false) {
      std::string quantifier;
      bool interval = false;
      if (LooksAt("*") || LooksAt("+") || LooksAt("?")) {
        quantifier = in_.substr(at_++, 1);
      } else if (LooksAt("{")) {
        ASSIGN_OR_RETURN(const std::optional<std::string> parsed, Interval());
        if (!parsed) return {};  // This is no repetition, so the brace is literal.
        quantifier = *parsed;
        interval = true;
      } else {
        return {};
      }
      if (!first) {  // In a+* the star repeats a repetition.
        out_.insert(start, "(?:");
        out_ += ')';
      }
      out_ += quantifier;
      if (Take("?")) {
        if (interval && quantifier.find(',') == std::string::npos) return Unsupported("{n}?");
        out_ += '?';
      } else if (!interval && Take("+")) {
        out_ += '+';
      }
    }
  }

  // Parses {n}, {n,}, {,m} or {n,m}; nullopt, without advancing, for anything else.
  Result<std::optional<std::string>> Interval() {
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view inside = in_.substr(at_ + 1, close - at_ - 1);
    const size_t comma = inside.find(',');
    const std::string_view low = inside.substr(0, comma);
    const std::string_view high =
        comma == std::string_view::npos ? std::string_view() : inside.substr(comma + 1);
    if (low.empty() && high.empty()) return std::nullopt;
    for (const std::string_view number : {low, high}) {
      if (number.size() > 5) return std::nullopt;
      uint32_t value = 0;
      for (const char c : number) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + static_cast<uint32_t>(c - '0');
      }
      if (value > kMaxRepeat)
        return Unsupported(fmt::format("more than {} repetitions", kMaxRepeat));
    }
    at_ = close + 1;
    if (comma == std::string_view::npos) return fmt::format("{{{}}}", low);
    return fmt::format("{{{},{}}}", low.empty() ? "0" : low, high);
  }

  // Parses \s and similar escapes as a set; for others returns nullopt without advancing. REQUIRES:
  // the next character is a backslash.
  Result<std::optional<CodePointSet>> ClassEscape() {
    if (at_ + 1 >= in_.size()) return Unsupported("a backslash at the end");
    const char c = in_[at_ + 1];
    CodePointSet set;
    switch (c) {
      case 's':
      case 'S': set = CodePointSet::WithFlag(unicode::kSpace); break;
      case 'w':
      case 'W': set = CodePointSet::WithFlag(unicode::kRegexWord); break;
      case 'd':
      case 'D': set = *CodePointSet::OfProperty("Nd"); break;
      case 'h':
      case 'H':
        set.Add('0', '9');
        set.Add('a', 'f');
        set.Add('A', 'F');
        break;
      case 'p':
      case 'P': return Property();
      default: return std::nullopt;
    }
    at_ += 2;
    if (c >= 'A' && c <= 'Z') set.Complement();
    return set;
  }

  Result<std::optional<CodePointSet>> Property() {
    const size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) {
      return Unsupported("\\p without {name}");
    }
    bool negated = in_[at_ + 1] == 'P';
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::optional<CodePointSet> set = CodePointSet::OfProperty(name);
    if (!set) return Unsupported(fmt::format("the property '{}'", name));
    at_ = close + 1;
    if (negated) set->Complement();
    return set;
  }

  // Parses \n, \x41, \. and similar escapes as a code point. REQUIRES: the next character is a
  // backslash, and ClassEscape returned nullopt.
  Result<char32_t> LiteralEscape() {
    ++at_;
    const char c = in_[at_];
    const auto hex = [&](size_t digits) -> Result<char32_t> {
      char32_t value = 0;
      size_t n = 0;
      for (; n < digits && More() && (IsAlnum(in_[at_])); ++n, ++at_) {
        const char d = static_cast<char>(in_[at_] | 0x20);
        if (d >= '0' && d <= '9') {
          value = value * 16 + static_cast<char32_t>(d - '0');
        } else if (d >= 'a' && d <= 'f') {
          value = value * 16 + static_cast<char32_t>(d - 'a' + 10);
        } else {
          break;
        }
      }
      if (n == 0 || value > unicode::kMaxCodePoint || (value >= 0xD800 && value < 0xE000)) {
        return Unsupported("a number that is not a code point");
      }
      return value;
    };
    if (static_cast<unsigned char>(c) >= 0x80 || !IsAlnum(c)) return TakeCodePoint();
    ++at_;
    switch (c) {
      case 'n': return U'\n';
      case 'r': return U'\r';
      case 't': return U'\t';
      case 'f': return U'\f';
      case 'v': return U'\v';
      case 'a': return U'\a';
      case 'e': return U'\x1B';
      case 'x':
        if (Take("{")) {
          ASSIGN_OR_RETURN(const char32_t value, hex(8));
          if (!Take("}")) return Unsupported("\\x{ without }");
          return value;
        } else {
          ASSIGN_OR_RETURN(const char32_t value, hex(2));
          if (value >= 0x80) return Unsupported("a byte above \\x7F");
          return value;
        }
      case 'u': return hex(4);
      default: return Unsupported(fmt::format("\\{}", c));
    }
  }

  Result<bool> Escape() {
    ASSIGN_OR_RETURN(const std::optional<CodePointSet> set, ClassEscape());
    if (set) {
      EmitSet(*set, false);
      return true;
    }
    static constexpr std::string_view kAnchors[] = {"\\A", "\\z", "\\Z", "\\G"};
    for (const std::string_view anchor : kAnchors) {
      if (!Take(anchor)) continue;
      out_ += anchor;
      return true;
    }
    if (LooksAt("\\b") || LooksAt("\\B")) {
      const bool boundary = in_[at_ + 1] == 'b';
      at_ += 2;
      const std::string word = "[" + CodePointSet::WithFlag(unicode::kRegexWord).ToPcre2() + "]";
      out_ += boundary ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                       : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
      return true;
    }
    ASSIGN_OR_RETURN(const char32_t literal, LiteralEscape());
    EmitLiteral(literal);
    return true;
  }

  // Parses a class from after its '[' to the matching ']'. `negated`: whether the class begins with
  // '^', which the caller must apply.
  Result<CodePointSet> Class(int depth, bool& negated) {
    if (depth > kMaxDepth) return Unsupported("classes nested too deep");
    negated = Take("^");
    if (LooksAt("]")) return Unsupported("an empty class");
    CodePointSet allowed;  // the set that the class allows before its last &&
    allowed.Complement();
    CodePointSet set;
    while (More() && !LooksAt("]")) {
      if (Take("&&")) {
        allowed.Intersect(set);
        set = CodePointSet();
        continue;
      }
      if (LooksAt("[:")) {
        RETURN_IF_ERROR(PosixClass(set));
        continue;
      }
      if (Take("[")) {
        bool inner_negated = false;
        ASSIGN_OR_RETURN(CodePointSet inner, Class(depth + 1, inner_negated));
        if (inner_negated) inner.Complement();
        set.Add(inner);
        continue;
      }
      if (LooksAt("\\")) {
        ASSIGN_OR_RETURN(const std::optional<CodePointSet> escaped, ClassEscape());
        if (escaped) {
          set.Add(*escaped);
          continue;
        }
      }
      ASSIGN_OR_RETURN(const char32_t first, ClassMember());
      char32_t last = first;
      if (LooksAt("-") && !LooksAt("-]") && at_ + 1 < in_.size()) {
        ++at_;
        if (LooksAt("[")) return Unsupported("a range that ends in a class");
        if (LooksAt("\\")) {
          const size_t before = at_;
          ASSIGN_OR_RETURN(const std::optional<CodePointSet> escaped, ClassEscape());
          if (escaped) {  // [a-\s] contains a hyphen.
            at_ = before;
            set.Add(first, first);
            set.Add('-', '-');
            continue;
          }
        }
        ASSIGN_OR_RETURN(last, ClassMember());
        if (last < first) return Unsupported("a range that runs backwards");
      }
      set.Add(first, last);
    }
    if (!Take("]")) return Unsupported("an unmatched [");
    set.Intersect(allowed);
    return set;
  }

  Result<char32_t> ClassMember() {
    if (!More()) return Unsupported("an unmatched [");
    if (LooksAt("\\b")) {
      at_ += 2;
      return U'\b';
    }
    if (LooksAt("\\")) {
      if (at_ + 1 >= in_.size()) return Unsupported("a backslash at the end");
      return LiteralEscape();
    }
    return TakeCodePoint();
  }

  Status PosixClass(CodePointSet& set) {
    if (Take("[:space:]")) {
      set.Add(CodePointSet::WithFlag(unicode::kSpace));
    } else if (Take("[:digit:]")) {
      set.Add(*CodePointSet::OfProperty("Nd"));
    } else if (Take("[:word:]")) {
      set.Add(CodePointSet::WithFlag(unicode::kRegexWord));
    } else if (Take("[:ascii:]")) {
      set.Add(0, 0x7F);
    } else {
      return Unsupported(fmt::format("the class '{}'", in_.substr(at_, 12)));
    }
    return {};
  }

  void EmitSet(const CodePointSet& set, bool negated) {
    const std::string inside = set.ToPcre2();
    if (inside.empty()) {
      out_ += negated ? "(?s:.)" : "(?!)";
    } else {
      out_ += (negated ? "[^" : "[") + inside + "]";
    }
  }

  void EmitLiteral(char32_t c) {
    if (c >= 0x80) {
      AppendUtf8(out_, c);
    } else if (IsAlnum(static_cast<char>(c))) {
      out_ += static_cast<char>(c);
    } else {
      out_ += fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(c));
    }
  }

  std::string_view in_;
  size_t at_ = 0;
  size_t atoms_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateOniguruma(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace sluice
