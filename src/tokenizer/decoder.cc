#include "tokenizer/decoder.h"

#include <algorithm>
#include <optional>

#include "base/ascii.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/encode_budget.h"
#include "tokenizer/regex.h"
#include "tokenizer/step_fields.h"
#include "tokenizer/unicode.h"

namespace sluice {

class Decoder::Step {
 public:
  virtual ~Step() = default;
  virtual void Run(std::vector<std::string>& tokens) const = 0;
  // Decodes a token that is not the first or the last one.
  virtual void RunInside(std::vector<std::string>& tokens) const { Run(tokens); }
};

namespace {

// Returns the byte of a token such as "<0x41>".
std::optional<char> FallbackByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  // Hugging Face `tokenizers` accepts a sign before a single digit: "<0x+F>" is byte 15.
  const bool sign = token[3] == '+';
  for (const char c : token.substr(sign ? 4 : 3, sign ? 1 : 2)) {
    const int digit = HexDigit(c);
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

std::string ByteLevelBytes(std::string_view spelling) {
  return byte_level::Unspell(spelling).value_or(std::string(spelling));
}

// Replaces every occurrence of `from` in `text`. REQUIRES: `from` is not empty.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at = 0; (at = text.find(from, begin)) != std::string_view::npos;
       begin = at + from.size()) {
    out.append(text, begin, at - begin);
    out.append(to);
  }
  return out.append(text, begin);
}

std::string Join(const std::vector<std::string>& tokens, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(tokens[i]);
  }
  return out;
}

class ByteLevelStep : public Decoder::Step {
 public:
  void Run(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes.append(ByteLevelBytes(token));
    std::string text;
    unicode::AppendLossy(text, bytes);
    tokens.assign(1, std::move(text));
  }
};

class FuseStep : public Decoder::Step {
 public:
  void Run(std::vector<std::string>& tokens) const override { tokens.assign(1, Join(tokens, "")); }
};

class ByteFallbackStep : public Decoder::Step {
 public:
  void Run(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    out.reserve(tokens.size());
    std::string bytes;
    const auto flush = [&] {
      if (IsValidUtf8(bytes)) {
        if (!bytes.empty()) out.push_back(bytes);
      } else {
        // Appends one U+FFFD per byte, even for bytes that would be valid on their own.
        out.insert(out.end(), bytes.size(), std::string(unicode::kReplacement));
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = FallbackByte(token)) {
        bytes.push_back(*byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
};

// Replaces the end-of-word suffix by a space; removes it from the last token.
class SuffixStep : public Decoder::Step {
 public:
  explicit SuffixStep(std::string suffix) : suffix_(std::move(suffix)) {}
  void Run(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      ReplaceSuffix(tokens[i], i + 1 == tokens.size() ? "" : " ");
  }
  void RunInside(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) ReplaceSuffix(token, " ");
  }

 private:
  void ReplaceSuffix(std::string& token, std::string_view by) const {
    for (size_t at = 0; (at = token.find(suffix_, at)) != std::string::npos; at += by.size())
      token.replace(at, suffix_.size(), by);
  }

  std::string suffix_;
};

class MetaspaceStep : public Decoder::Step {
 public:
  MetaspaceStep(std::string replacement, bool drop_first)
      : replacement_(std::move(replacement)), drop_first_(drop_first) {}
  void Run(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = ReplaceAll(tokens[i], replacement_, i == 0 && drop_first_ ? "" : " ");
  }
  void RunInside(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = ReplaceAll(token, replacement_, " ");
  }

 private:
  std::string replacement_;
  bool drop_first_;
};

class ReplaceStep : public Decoder::Step {
 public:
  ReplaceStep(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Run(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = pattern_.Replace(token, content_);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class StripStep : public Decoder::Step {
 public:
  StripStep(char32_t content, size_t start, size_t stop)
      : content_(content), start_(start), stop_(stop) {}
  void Run(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      size_t left = 0;
      for (; left < start_ && !rest.empty() && unicode::Decode(rest.data()).code_point == content_;
           ++left) {
        rest.remove_prefix(unicode::SequenceLength(rest[0]));
      }
      for (size_t i = 0; i < stop_ && !rest.empty(); ++i) {
        const unicode::Decoded last = unicode::DecodeLast(rest);
        if (last.code_point != content_) break;
        rest.remove_suffix(last.length);
      }
      token = std::string(rest);
    }
  }
  void RunInside(std::vector<std::string>&) const override {}

 private:
  char32_t content_;
  size_t start_, stop_;
};

// Tokens that continue a word have a prefix. All others begin a word, so a space is inserted before
// them. `cleanup` removes the spaces before punctuation and English contractions.
class WordPieceStep : public Decoder::Step {
 public:
  WordPieceStep(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void Run(std::vector<std::string>& tokens) const override { Join(tokens, 1); }
  void RunInside(std::vector<std::string>& tokens) const override { Join(tokens, 0); }

 private:
  // Adds a space to each token from `first` on, or removes its prefix.
  void Join(std::vector<std::string>& tokens, size_t first) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i >= first) {
        if (tokens[i].starts_with(prefix_))
          tokens[i].erase(0, prefix_.size());
        else
          tokens[i].insert(0, " ");
      }
      if (cleanup_) CleanUp(tokens[i]);
    }
  }
  static void CleanUp(std::string& token) {
    constexpr std::pair<std::string_view, std::string_view> kSpaced[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [spaced, plain] : kSpaced) token = ReplaceAll(token, spaced, plain);
  }

  std::string prefix_;
  bool cleanup_;
};

Result<char32_t> OneCharacter(const StepFields& fields, std::string_view name) {
  ASSIGN_OR_RETURN(const std::string text, fields.String(name));
  const std::optional<char32_t> code_point = unicode::OnlyCodePoint(text);
  if (!code_point) return fields.Wrong(name, "one character", fields.Find(name));
  return *code_point;
}

Result<std::unique_ptr<Decoder::Step>> ParseDecoder(const StepFields& fields, TextGrowth& growth) {
  using Step = std::unique_ptr<Decoder::Step>;
  const std::string& type = fields.type();
  if (type == "ByteLevel") return Step(new ByteLevelStep);
  if (type == "Fuse") return Step(new FuseStep);
  if (type == "ByteFallback") return Step(new ByteFallbackStep);
  if (type == "Metaspace") {
    ASSIGN_OR_RETURN(const char32_t replacement, OneCharacter(fields, "replacement"));
    bool drop_first = true;
    if (const json::Value* scheme = fields.Find("prepend_scheme")) {
      if (!scheme->is_string()) return fields.Wrong("prepend_scheme", "a string", scheme);
      drop_first = scheme->as_string() != "never";
    }
    ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
    std::string spelled;
    AppendUtf8(spelled, replacement);
    return Step(new MetaspaceStep(std::move(spelled), drop_first && add_prefix_space));
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(fields.Find("pattern"), fields.where()));
    ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    RETURN_IF_ERROR(growth.Add(fields, pattern.Growth(content)));
    return Step(new ReplaceStep(std::move(pattern), std::move(content)));
  }
  if (type == "Strip") {
    ASSIGN_OR_RETURN(const char32_t content, OneCharacter(fields, "content"));
    ASSIGN_OR_RETURN(const size_t start, fields.Count("start"));
    ASSIGN_OR_RETURN(const size_t stop, fields.Count("stop"));
    return Step(new StripStep(content, start, stop));
  }
  if (type == "BPEDecoder") {
    ASSIGN_OR_RETURN(std::string suffix, fields.String("suffix"));
    if (suffix.empty())
      return fields.Wrong("suffix", "a text that is not empty", fields.Find("suffix"));
    return Step(new SuffixStep(std::move(suffix)));
  }
  if (type == "WordPiece") {
    ASSIGN_OR_RETURN(std::string prefix, fields.String("prefix"));
    ASSIGN_OR_RETURN(const bool cleanup, fields.Bool("cleanup", true));
    return Step(new WordPieceStep(std::move(prefix), cleanup));
  }
  return fields.UnsupportedType(
      "ByteLevel, Metaspace, WordPiece, BPEDecoder, ByteFallback, Fuse, Replace, Strip, Sequence");
}

}  // namespace

Decoder::Decoder() = default;
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

Result<Decoder> Decoder::Parse(const json::Value* value) {
  Decoder decoder;
  decoder.present_ = value != nullptr && !value->is_null();
  size_t count = 0;
  TextGrowth growth;
  bool byte_level = false;
  RETURN_IF_ERROR(ForEachStep(
      value, "decoder", "decoders",
      [&](const StepFields& fields) -> Status {
        ASSIGN_OR_RETURN(auto step, ParseDecoder(fields, growth));
        byte_level = fields.type() == "ByteLevel";
        decoder.has_byte_fallback_ |= fields.type() == "ByteFallback";
        decoder.steps_.push_back(std::move(step));
        return {};
      },
      &count));
  decoder.is_byte_level_ = byte_level && decoder.steps_.size() == 1;
  return decoder;
}

std::string Decoder::Decode(std::vector<std::string> tokens) const {
  if (!present_) return Join(tokens, " ");
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  const EncodeBudget budget(bytes);
  for (const auto& step : steps_) step->Run(tokens);
  return Join(tokens, "");
}

std::string Decoder::BytesOf(std::string_view spelling) const {
  if (is_byte_level_) return ByteLevelBytes(spelling);
  if (has_byte_fallback_) {
    if (const std::optional<char> byte = FallbackByte(spelling)) return std::string(1, *byte);
  }
  const EncodeBudget budget(spelling.size());
  std::vector<std::string> tokens{std::string(spelling)};
  for (const auto& step : steps_) step->RunInside(tokens);
  return Join(tokens, "");
}

}  // namespace sluice
