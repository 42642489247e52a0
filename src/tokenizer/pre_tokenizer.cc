#include "tokenizer/pre_tokenizer.h"

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/regex.h"
#include "tokenizer/split_behavior.h"
#include "tokenizer/step_fields.h"
#include "tokenizer/unicode.h"

namespace sluice {

class PreTokenizer::Step {
 public:
  virtual ~Step() = default;
  virtual void Run(Pieces& pieces) const = 0;
  // The known pattern if nothing else affects this step's pieces; otherwise nullopt.
  virtual std::optional<SplitPattern> pattern() const { return std::nullopt; }
};

namespace {

// Replaces every piece by the spans that find(text, spans) returns.
template <typename Find>
void Refine(Pieces& pieces, Find&& find) {
  std::vector<Pieces::Piece> refined;
  refined.reserve(pieces.pieces.size() * 2);
  std::vector<Span> spans;
  for (const Pieces::Piece& piece : pieces.pieces) {
    find(pieces.text.substr(piece.begin, piece.end - piece.begin), spans);
    for (const Span& span : spans) {
      if (span.begin == span.end) continue;
      refined.push_back(
          {piece.begin + span.begin, piece.begin + span.end, piece.at_start && span.begin == 0});
    }
  }
  pieces.pieces = std::move(refined);
}

// Rewrites the text of every piece with append(out, text, at_start).
template <typename Append>
void Rewrite(Pieces& pieces, Append&& append) {
  std::string out;
  out.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (Pieces::Piece& piece : pieces.pieces) {
    const size_t begin = out.size();
    append(out, pieces.text.substr(piece.begin, piece.end - piece.begin), piece.at_start);
    piece.begin = begin;
    piece.end = out.size();
  }
  std::erase_if(pieces.pieces, [](const Pieces::Piece& piece) { return piece.begin == piece.end; });
  pieces.owned = std::move(out);
  pieces.text = pieces.owned;
}

// Finds spans whose matches are the characters for which `is_match` is true.
template <typename IsMatch>
void FindChars(std::string_view text, std::vector<Span>& spans, IsMatch&& is_match) {
  spans.clear();
  size_t last = 0;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded decoded = unicode::Decode(text.data() + i);
    if (is_match(decoded.code_point)) {
      if (last < i) spans.push_back({last, i, false});
      spans.push_back({i, i + decoded.length, true});
      last = i + decoded.length;
    }
    i += decoded.length;
  }
  if (last < text.size()) spans.push_back({last, text.size(), false});
}

void FindPattern(SplitPattern pattern, std::string_view text, std::vector<Span>& spans) {
  spans.clear();
  ScanPieces(pattern, text, [&](std::string_view piece) {
    const auto begin = static_cast<size_t>(piece.data() - text.data());
    spans.push_back({begin, begin + piece.size(), true});
  });
}

class SplitStep : public PreTokenizer::Step {
 public:
  SplitStep(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void Run(Pieces& pieces) const override {
    Refine(pieces, [this](std::string_view text, std::vector<Span>& spans) {
      pattern_.Find(text, spans);
      if (invert_) {
        for (Span& span : spans) span.is_match = !span.is_match;
      }
      ApplySplitBehavior(behavior_, spans);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Splits by a known pattern. Its matches cover the whole text, so `invert` makes no difference.
class KnownSplitStep : public PreTokenizer::Step {
 public:
  explicit KnownSplitStep(SplitPattern pattern) : pattern_(pattern) {}
  void Run(Pieces& pieces) const override {
    Refine(pieces, [this](std::string_view text, std::vector<Span>& spans) {
      FindPattern(pattern_, text, spans);
    });
  }
  std::optional<SplitPattern> pattern() const override { return pattern_; }

 private:
  SplitPattern pattern_;
};

class ByteLevelSplit : public PreTokenizer::Step {
 public:
  ByteLevelSplit(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}
  void Run(Pieces& pieces) const override {
    if (add_prefix_space_) {
      Rewrite(pieces, [](std::string& out, std::string_view text, bool) {
        if (!text.starts_with(' ')) out.push_back(' ');
        out.append(text);
      });
    }
    if (use_regex_) {
      Refine(pieces, [](std::string_view text, std::vector<Span>& spans) {
        FindPattern(SplitPattern::kGpt2, text, spans);
      });
    }
    if (keep_bytes) return;
    Rewrite(pieces, [](std::string& out, std::string_view text, bool) {
      out.append(byte_level::Spell(text));
    });
  }
  std::optional<SplitPattern> pattern() const override {
    if (add_prefix_space_ || !use_regex_ || !keep_bytes) return std::nullopt;
    return SplitPattern::kGpt2;
  }
  bool DoesNothing() const { return !add_prefix_space_ && !use_regex_ && keep_bytes; }

  bool keep_bytes = false;

 private:
  bool add_prefix_space_, use_regex_;
};

// Implements Digits, Punctuation and WhitespaceSplit, whose matches are single characters with a
// property.
class PropertyStep : public PreTokenizer::Step {
 public:
  PropertyStep(uint16_t property, SplitBehavior behavior)
      : property_(property), behavior_(behavior) {}
  void Run(Pieces& pieces) const override {
    Refine(pieces, [this](std::string_view text, std::vector<Span>& spans) {
      FindChars(text, spans,
                [this](char32_t c) { return (unicode::Properties(c) & property_) != 0; });
      ApplySplitBehavior(behavior_, spans);
    });
  }

 private:
  uint16_t property_;
  SplitBehavior behavior_;
};

// Cuts a text into runs of word characters and runs of other characters that are not white space;
// removes white space.
class WhitespaceStep : public PreTokenizer::Step {
 public:
  void Run(Pieces& pieces) const override {
    Refine(pieces, [](std::string_view text, std::vector<Span>& spans) {
      spans.clear();
      int last_kind = 0;
      for (size_t i = 0; i < text.size();) {
        const unicode::Decoded decoded = unicode::Decode(text.data() + i);
        const uint16_t properties = unicode::Properties(decoded.code_point);
        const int kind = properties & unicode::kWord ? 1 : properties & unicode::kSpace ? 0 : 2;
        if (kind != 0 && kind == last_kind) {
          spans.back().end = i + decoded.length;
        } else if (kind != 0) {
          spans.push_back({i, i + decoded.length, false});
        }
        last_kind = kind;
        i += decoded.length;
      }
    });
  }
};

class MetaspaceSplit : public PreTokenizer::Step {
 public:
  enum class Prepend { kAlways, kFirst, kNever };

  MetaspaceSplit(char32_t replacement, Prepend prepend, bool split)
      : code_point_(replacement), prepend_(prepend), split_(split) {
    AppendUtf8(replacement_, replacement);
  }
  void Run(Pieces& pieces) const override {
    Rewrite(pieces, [this](std::string& out, std::string_view text, bool at_start) {
      const bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && at_start);
      if (wanted && !text.starts_with(replacement_) && !text.starts_with(' '))
        out.append(replacement_);
      for (const char c : text) {
        if (c == ' ') {
          out.append(replacement_);
        } else {
          out.push_back(c);
        }
      }
    });
    if (!split_) return;
    Refine(pieces, [this](std::string_view text, std::vector<Span>& spans) {
      FindChars(text, spans, [this](char32_t c) { return c == code_point_; });
      ApplySplitBehavior(SplitBehavior::kMergedWithNext, spans);
    });
  }

 private:
  char32_t code_point_;
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

using StepPointer = std::unique_ptr<PreTokenizer::Step>;

Result<SplitBehavior> Behavior(const StepFields& fields, std::optional<SplitBehavior> fallback) {
  if (fields.Find("behavior") == nullptr && fallback) return *fallback;
  ASSIGN_OR_RETURN(const std::string name, fields.String("behavior"));
  const std::optional<SplitBehavior> behavior = ParseSplitBehavior(name);
  if (!behavior) {
    return fields.Wrong("behavior",
                        "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
                        fields.Find("behavior"));
  }
  return *behavior;
}

Result<StepPointer> ParseMetaspace(const StepFields& fields) {
  using Prepend = MetaspaceSplit::Prepend;
  ASSIGN_OR_RETURN(const std::string replacement, fields.String("replacement"));
  const std::optional<char32_t> code_point = unicode::OnlyCodePoint(replacement);
  if (!code_point) return fields.Wrong("replacement", "one character", fields.Find("replacement"));
  Prepend prepend = Prepend::kAlways;
  if (const json::Value* scheme = fields.Find("prepend_scheme")) {
    const std::string name = scheme->is_string() ? scheme->as_string() : "";
    if (name != "always" && name != "first" && name != "never") {
      return fields.Wrong("prepend_scheme", "always, first or never", scheme);
    }
    prepend = name == "always"  ? Prepend::kAlways
              : name == "first" ? Prepend::kFirst
                                : Prepend::kNever;
  }
  ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  if (!add_prefix_space && prepend != Prepend::kNever) {
    return fields.Wrong("prepend_scheme", "never where add_prefix_space is false",
                        fields.Find("prepend_scheme"));
  }
  ASSIGN_OR_RETURN(const bool split, fields.Bool("split", true));
  return StepPointer(new MetaspaceSplit(*code_point, prepend, split));
}

std::optional<SplitPattern> KnownPattern(const StepFields& fields) {
  const json::Value* pattern = fields.Find("pattern");
  const json::Value* regex = pattern == nullptr ? nullptr : pattern->Find("Regex");
  if (regex == nullptr || !regex->is_string() || pattern->as_object().size() != 1)
    return std::nullopt;
  return RecognizeSplitPattern(regex->as_string());
}

// Removes white space and makes each punctuation mark a piece.
class BertSplit : public PreTokenizer::Step {
 public:
  void Run(Pieces& pieces) const override {
    spaces_.Run(pieces);
    punctuation_.Run(pieces);
  }

 private:
  PropertyStep spaces_{unicode::kSpace, SplitBehavior::kRemoved};
  PropertyStep punctuation_{unicode::kPunctuation, SplitBehavior::kIsolated};
};

Result<StepPointer> ParsePreTokenizer(const StepFields& fields) {
  const std::string& type = fields.type();
  if (type == "Split") {
    ASSIGN_OR_RETURN(const SplitBehavior behavior, Behavior(fields, std::nullopt));
    ASSIGN_OR_RETURN(const bool invert, fields.Bool("invert"));
    if (behavior == SplitBehavior::kIsolated) {
      if (const std::optional<SplitPattern> known = KnownPattern(fields))
        return StepPointer(new KnownSplitStep(*known));
    }
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(fields.Find("pattern"), fields.where()));
    return StepPointer(new SplitStep(std::move(pattern), behavior, invert));
  }
  if (type == "ByteLevel") {
    ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space"));
    ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
    return StepPointer(new ByteLevelSplit(add_prefix_space, use_regex));
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, fields.Bool("individual_digits"));
    return StepPointer(new PropertyStep(
        unicode::kNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  }
  if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const SplitBehavior behavior, Behavior(fields, SplitBehavior::kIsolated));
    return StepPointer(new PropertyStep(unicode::kPunctuation, behavior));
  }
  if (type == "BertPreTokenizer") return StepPointer(new BertSplit);
  if (type == "Whitespace") return StepPointer(new WhitespaceStep);
  if (type == "WhitespaceSplit")
    return StepPointer(new PropertyStep(unicode::kSpace, SplitBehavior::kRemoved));
  if (type == "Metaspace") return ParseMetaspace(fields);
  return fields.UnsupportedType(
      "ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
      "Metaspace, Sequence");
}

}  // namespace

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Parse(const json::Value* value) {
  PreTokenizer result;
  size_t count = 0;
  int byte_levels = 0;
  RETURN_IF_ERROR(ForEachStep(
      value, "pre_tokenizer", "pretokenizers",
      [&](const StepFields& fields) -> Status {
        ASSIGN_OR_RETURN(StepPointer step, ParsePreTokenizer(fields));
        result.ends_in_byte_level_ = fields.type() == "ByteLevel";
        byte_levels += result.ends_in_byte_level_ ? 1 : 0;
        result.steps_.push_back(std::move(step));
        return {};
      },
      &count));
  if (byte_levels > 1) result.ends_in_byte_level_ = false;
  result.SetKeepBytes(false);
  return result;
}

void PreTokenizer::SetKeepBytes(bool keep) {
  size_t active = steps_.size();
  if (ends_in_byte_level_) {
    auto* last = static_cast<ByteLevelSplit*>(steps_.back().get());
    last->keep_bytes = keep;
    if (last->DoesNothing()) --active;
  }
  identity_ = active == 0;
  only_pattern_ = active == 1 ? steps_[0]->pattern() : std::nullopt;
}

void PreTokenizer::Run(std::string_view text, bool at_start, Pieces& pieces) const {
  pieces.text = text;
  pieces.pieces.clear();
  if (text.empty()) return;
  pieces.pieces.push_back({0, text.size(), at_start});
  for (const auto& step : steps_) step->Run(pieces);
}

}  // namespace sluice
