#include "tokenizer/normalizer.h"

#include <algorithm>

#include "tokenizer/bert_normalizer.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/precompiled_map.h"
#include "tokenizer/regex.h"
#include "tokenizer/step_fields.h"
#include "tokenizer/unicode.h"

namespace sluice {

class Normalizer::Step {
 public:
  virtual ~Step() = default;
  virtual void Run(std::string& text, bool& at_start) const = 0;
};

namespace {

class FormStep : public Normalizer::Step {
 public:
  explicit FormStep(unicode::NormalForm form) : form_(form) {}
  void Run(std::string& text, bool&) const override { text = unicode::Normalize(text, form_); }

 private:
  unicode::NormalForm form_;
};

class LowercaseStep : public Normalizer::Step {
 public:
  void Run(std::string& text, bool&) const override { text = unicode::Lowercase(text); }
};

class StripNormalizer : public Normalizer::Step {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void Run(std::string& text, bool& at_start) const override {
    size_t begin = 0;
    while (left_ && begin < text.size()) {
      const unicode::Decoded decoded = unicode::Decode(text.data() + begin);
      if (!(unicode::Properties(decoded.code_point) & unicode::kSpace)) break;
      begin += decoded.length;
    }
    size_t end = text.size();
    while (right_ && end > begin) {
      const unicode::Decoded decoded = unicode::DecodeLast(std::string_view(text).substr(0, end));
      if (!(unicode::Properties(decoded.code_point) & unicode::kSpace)) break;
      end -= decoded.length;
    }
    if (begin > 0) at_start = false;
    text = text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class StripAccentsStep : public Normalizer::Step {
 public:
  void Run(std::string& text, bool& at_start) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const unicode::Decoded decoded = unicode::Decode(text.data() + i);
      if (unicode::Properties(decoded.code_point) & unicode::kAccent) {
        if (i == 0) at_start = false;
      } else {
        out.append(text, i, decoded.length);
      }
      i += decoded.length;
    }
    text = std::move(out);
  }
};

class ReplaceNormalizer : public Normalizer::Step {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Run(std::string& text, bool& at_start) const override {
    std::vector<Span> spans;
    pattern_.Find(text, spans);
    if (content_.empty() && !spans.empty() && spans[0].is_match && spans[0].end > 0)
      at_start = false;
    std::string out;
    out.reserve(text.size());
    for (const Span& span : spans) {
      out.append(span.is_match ? std::string_view(content_)
                               : std::string_view(text).substr(span.begin, span.end - span.begin));
    }
    text = std::move(out);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class PrependStep : public Normalizer::Step {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  void Run(std::string& text, bool&) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class BertStep : public Normalizer::Step {
 public:
  explicit BertStep(BertNormalizer normalizer) : normalizer_(normalizer) {}
  void Run(std::string& text, bool& at_start) const override { normalizer_.Run(text, at_start); }

 private:
  BertNormalizer normalizer_;
};

class PrecompiledStep : public Normalizer::Step {
 public:
  explicit PrecompiledStep(PrecompiledMap map) : map_(std::move(map)) {}
  void Run(std::string& text, bool&) const override { text = map_.Normalize(text); }

 private:
  PrecompiledMap map_;
};

Result<BertNormalizer> ReadBertNormalizer(const StepFields& fields) {
  BertNormalizer normalizer;
  ASSIGN_OR_RETURN(normalizer.clean_text, fields.Bool("clean_text"));
  ASSIGN_OR_RETURN(normalizer.handle_chinese_chars, fields.Bool("handle_chinese_chars"));
  ASSIGN_OR_RETURN(normalizer.lowercase, fields.Bool("lowercase"));
  ASSIGN_OR_RETURN(normalizer.strip_accents, fields.Bool("strip_accents", normalizer.lowercase));
  return normalizer;
}

Result<std::unique_ptr<Normalizer::Step>> ParseNormalizer(const StepFields& fields,
                                                          TextGrowth& growth) {
  using Step = std::unique_ptr<Normalizer::Step>;
  const std::string& type = fields.type();
  if (type == "NFC") return Step(new FormStep(unicode::NormalForm::kNfc));
  if (type == "NFD") return Step(new FormStep(unicode::NormalForm::kNfd));
  if (type == "NFKC") return Step(new FormStep(unicode::NormalForm::kNfkc));
  if (type == "NFKD") return Step(new FormStep(unicode::NormalForm::kNfkd));
  if (type == "Lowercase") return Step(new LowercaseStep);
  if (type == "StripAccents") return Step(new StripAccentsStep);
  if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left"));
    ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right"));
    return Step(new StripNormalizer(left, right));
  }
  if (type == "Replace") {
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(fields.Find("pattern"), fields.where()));
    ASSIGN_OR_RETURN(std::string content, fields.String("content"));
    RETURN_IF_ERROR(growth.Add(fields, pattern.Growth(content)));
    return Step(new ReplaceNormalizer(std::move(pattern), std::move(content)));
  }
  if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prefix, fields.String("prepend"));
    RETURN_IF_ERROR(growth.Add(fields, 1 + prefix.size()));  // Worst case: a text of one byte.
    return Step(new PrependStep(std::move(prefix)));
  }
  if (type == "BertNormalizer") {
    ASSIGN_OR_RETURN(const BertNormalizer normalizer, ReadBertNormalizer(fields));
    RETURN_IF_ERROR(growth.Add(fields, 3));  // Worst cases: spaces around ideographs, or
                                             // decomposition.
    return Step(new BertStep(normalizer));
  }
  if (type == "Precompiled") {
    if (fields.Find("precompiled_charsmap") == nullptr)
      return Step(new PrecompiledStep(PrecompiledMap()));
    ASSIGN_OR_RETURN(const std::string base64, fields.String("precompiled_charsmap"));
    ASSIGN_OR_RETURN(PrecompiledMap map, PrecompiledMap::Create(base64));
    RETURN_IF_ERROR(growth.Add(fields, std::max<size_t>(1, map.longest())));
    return Step(new PrecompiledStep(std::move(map)));
  }
  return fields.UnsupportedType(
      "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, BertNormalizer, "
      "Precompiled, Sequence");
}

}  // namespace

Normalizer::Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

Result<Normalizer> Normalizer::Parse(const json::Value* value) {
  Normalizer normalizer;
  size_t count = 0;
  TextGrowth growth;
  RETURN_IF_ERROR(ForEachStep(
      value, "normalizer", "normalizers",
      [&](const StepFields& fields) -> Status {
        ASSIGN_OR_RETURN(auto step, ParseNormalizer(fields, growth));
        normalizer.steps_.push_back(std::move(step));
        return {};
      },
      &count));
  return normalizer;
}

std::string Normalizer::Normalize(std::string_view text, bool* at_start) const {
  std::string out(text);
  bool start = true;
  for (const auto& step : steps_) step->Run(out, start);
  if (at_start != nullptr && !start) *at_start = false;
  return out;
}

}  // namespace sluice
