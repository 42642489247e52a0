#include "tokenizer/post_processor.h"

#include <utility>

#include "tokenizer/step_fields.h"

namespace sluice {

// Reads one step of the post-processor.
class PostProcessorReader {
 public:
  using Part = PostProcessor::Part;
  using Kind = PostProcessor::Part::Kind;
  using Template = PostProcessor::Template;

  PostProcessorReader(const StepFields& fields, int32_t end_id)
      : fields_(fields), end_id_(end_id) {}

  // Appends the step to the templates for one text, and sets the template for two texts if the step
  // has one.
  Status Read(PostProcessor& processor) const {
    const std::string& type = fields_.type();
    if (type == "ByteLevel") return {};
    if (type == "TemplateProcessing") {
      ASSIGN_OR_RETURN(Template single, ReadTemplate("single"));
      processor.templates_.push_back(std::move(single));
      const json::Value* pair = fields_.Find("pair");
      if (pair == nullptr || !pair->is_array() || pair->as_array().empty()) return {};
      ASSIGN_OR_RETURN(processor.pair_, ReadTemplate("pair"));
      return {};
    }
    if (type != "BertProcessing" && type != "RobertaProcessing") {
      return fields_.UnsupportedType(
          "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
    }
    ASSIGN_OR_RETURN(const int32_t sep, ReadToken("sep"));
    ASSIGN_OR_RETURN(const int32_t cls, ReadToken("cls"));
    const bool is_roberta = type == "RobertaProcessing";
    processor.templates_.push_back({{Kind::kIds, {cls}}, {Kind::kFirst}, {Kind::kIds, {sep}}});
    // RoBERTa puts two separators between texts, and all its tokens have type 0.
    const int8_t second = is_roberta ? 0 : 1;
    processor.pair_ = {{Kind::kIds, {cls}},
                       {Kind::kFirst},
                       {Kind::kIds, is_roberta ? std::vector<int32_t>{sep, sep} : std::vector{sep}},
                       {Kind::kSecond, {}, second},
                       {Kind::kIds, {sep}, second}};
    return {};
  }

 private:
  static constexpr size_t kMaxParts = 64;
  static constexpr size_t kMaxIdsOfPart = 64;

  // Reads a pair such as ["[SEP]", 102] and returns the id.
  Result<int32_t> ReadToken(std::string_view name) const {
    ASSIGN_OR_RETURN(const json::Value::Array* const pair, fields_.Array(name));
    const bool is_good = pair->size() == 2 && (*pair)[1].is_integer() &&
                         (*pair)[1].as_integer() >= 0 && (*pair)[1].as_integer() < end_id_;
    if (!is_good) {
      return fields_.Wrong(name, "a token and its id, which is in the vocabulary",
                           fields_.Find(name));
    }
    return static_cast<int32_t>((*pair)[1].as_integer());
  }

  Result<std::vector<int32_t>> SpecialIds(const std::string& name) const {
    const json::Value* tokens = fields_.Find("special_tokens");
    const json::Value* token = tokens == nullptr ? nullptr : tokens->Find(name);
    const json::Value* ids = token == nullptr ? nullptr : token->Find("ids");
    if (ids == nullptr || !ids->is_array() || ids->as_array().size() > kMaxIdsOfPart) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: special_tokens must give the ids of '{}' (at most {})",
                              fields_.where(), name, kMaxIdsOfPart));
    }
    std::vector<int32_t> out;
    for (const json::Value& id : ids->as_array()) {
      if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= end_id_) {
        return Fail(
            ErrorCode::kInvalidData,
            fmt::format("{}: special_tokens: '{}' has an id outside the vocabulary (0 to {})",
                        fields_.where(), name, end_id_ - 1));
      }
      out.push_back(static_cast<int32_t>(id.as_integer()));
    }
    return out;
  }

  Result<Part> ReadPart(std::string_view name, const json::Value& element) const {
    const json::Value* sequence = element.Find("Sequence");
    const json::Value* special = element.Find("SpecialToken");
    const json::Value* inner = sequence != nullptr ? sequence : special;
    const json::Value* id = inner == nullptr ? nullptr : inner->Find("id");
    if (id == nullptr || !id->is_string()) {
      return fields_.Wrong(name, "parts of the form {\"Sequence\"|\"SpecialToken\": {\"id\": ...}}",
                           &element);
    }
    Part part;
    const json::Value* type = inner->Find("type_id");
    if (type != nullptr && type->is_integer()) {
      if (type->as_integer() < 0 || type->as_integer() > 1)
        return fields_.Wrong(name, "a type_id of 0 or 1", type);
      part.type = static_cast<int8_t>(type->as_integer());
    }
    if (sequence == nullptr) {
      ASSIGN_OR_RETURN(part.ids, SpecialIds(id->as_string()));
    } else if (id->as_string() == "A") {
      part.kind = Kind::kFirst;
    } else if (id->as_string() == "B" && name == "pair") {
      part.kind = Kind::kSecond;
    } else {
      return fields_.Wrong(name, "a template of sequence A, and of B in a pair", id);
    }
    return part;
  }

  Result<Template> ReadTemplate(std::string_view name) const {
    ASSIGN_OR_RETURN(const json::Value::Array* const elements, fields_.Array(name));
    if (elements->size() > kMaxParts)
      return fields_.Wrong(name, "at most 64 parts", fields_.Find(name));
    Template parts;
    int firsts = 0, seconds = 0;
    for (const json::Value& element : *elements) {
      ASSIGN_OR_RETURN(Part part, ReadPart(name, element));
      firsts += part.kind == Kind::kFirst ? 1 : 0;
      seconds += part.kind == Kind::kSecond ? 1 : 0;
      parts.push_back(std::move(part));
    }
    if (firsts != 1 || seconds != (name == "pair" ? 1 : 0)) {
      return fields_.Wrong(name, "a template that holds sequence A once, and B once in a pair",
                           fields_.Find(name));
    }
    return parts;
  }

  const StepFields& fields_;
  const int32_t end_id_;
};

Result<PostProcessor> PostProcessor::Parse(const json::Value* value, int32_t end_id) {
  PostProcessor processor;
  size_t count = 0;
  RETURN_IF_ERROR(ForEachStep(
      value, "post_processor", "processors",
      [&](const StepFields& fields) { return PostProcessorReader(fields, end_id).Read(processor); },
      &count));
  if (processor.pair_.empty())
    processor.pair_ = {{Part::Kind::kFirst}, {Part::Kind::kSecond, {}, 1}};
  return processor;
}

void PostProcessor::Apply(std::vector<int32_t>& ids) const {
  for (const Template& parts : templates_) {
    std::vector<int32_t> before;
    bool behind = false;
    for (const Part& part : parts) {
      if (part.kind != Part::Kind::kIds) {
        ids.insert(ids.begin(), before.begin(), before.end());
        behind = true;
      } else if (behind) {
        ids.insert(ids.end(), part.ids.begin(), part.ids.end());
      } else {
        before.insert(before.end(), part.ids.begin(), part.ids.end());
      }
    }
  }
}

PairOfTexts PostProcessor::ApplyPair(std::vector<int32_t> first,
                                     std::vector<int32_t> second) const {
  PairOfTexts pair;
  for (const Part& part : pair_) {
    const std::vector<int32_t>& ids = part.kind == Part::Kind::kFirst    ? first
                                      : part.kind == Part::Kind::kSecond ? second
                                                                         : part.ids;
    pair.ids.insert(pair.ids.end(), ids.begin(), ids.end());
    pair.types.insert(pair.types.end(), ids.size(), part.type);
  }
  return pair;
}

}  // namespace sluice
