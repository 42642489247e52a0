#include "tokenizer/post_processor.h"

#include "tokenizer/step_fields.h"

namespace sluice {
namespace {

constexpr size_t kMaxParts = 64;
constexpr size_t kMaxIdsOfPart = 64;

Result<std::vector<int32_t>> SpecialIds(const StepFields& fields, const std::string& name,
                                        int32_t end_id) {
  const json::Value* tokens = fields.Find("special_tokens");
  const json::Value* token = tokens == nullptr ? nullptr : tokens->Find(name);
  const json::Value* ids = token == nullptr ? nullptr : token->Find("ids");
  if (ids == nullptr || !ids->is_array() || ids->as_array().size() > kMaxIdsOfPart) {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: special_tokens must give the ids of '{}' (at most {})",
                            fields.where(), name, kMaxIdsOfPart));
  }
  std::vector<int32_t> out;
  for (const json::Value& id : ids->as_array()) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= end_id) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{}: special_tokens: '{}' has an id outside the vocabulary (0 to {})",
                              fields.where(), name, end_id - 1));
    }
    out.push_back(static_cast<int32_t>(id.as_integer()));
  }
  return out;
}

}  // namespace

Result<PostProcessor> PostProcessor::Parse(const json::Value* value, int32_t end_id) {
  PostProcessor processor;
  size_t count = 0;
  RETURN_IF_ERROR(ForEachStep(
      value, "post_processor", "processors",
      [&](const StepFields& fields) -> Status {
        if (fields.type() == "ByteLevel") return {};
        if (fields.type() != "TemplateProcessing") {
          return fields.UnsupportedType("TemplateProcessing, ByteLevel, Sequence");
        }
        ASSIGN_OR_RETURN(const json::Value::Array* const single, fields.Array("single"));
        if (single->size() > kMaxParts)
          return fields.Wrong("single", "at most 64 parts", fields.Find("single"));
        std::vector<Part> parts;
        size_t texts = 0;
        for (const json::Value& element : *single) {
          const json::Value* sequence = element.Find("Sequence");
          const json::Value* special = element.Find("SpecialToken");
          const json::Value* id = sequence != nullptr  ? sequence->Find("id")
                                  : special != nullptr ? special->Find("id")
                                                       : nullptr;
          if (id == nullptr || !id->is_string()) {
            return fields.Wrong("single",
                                "parts of the form {\"Sequence\"|\"SpecialToken\": {\"id\": ...}}",
                                &element);
          }
          Part part;
          if (sequence != nullptr) {
            if (id->as_string() != "A")
              return fields.Wrong("single", "a template of sequence A alone", id);
            part.is_text = true;
            ++texts;
          } else {
            ASSIGN_OR_RETURN(part.ids, SpecialIds(fields, id->as_string(), end_id));
          }
          parts.push_back(std::move(part));
        }
        if (texts != 1)
          return fields.Wrong("single", "a template that holds sequence A once",
                              fields.Find("single"));
        processor.templates_.push_back(std::move(parts));
        return {};
      },
      &count));
  return processor;
}

void PostProcessor::Apply(std::vector<int32_t>& ids) const {
  for (const std::vector<Part>& parts : templates_) {
    std::vector<int32_t> before;
    bool behind = false;
    for (const Part& part : parts) {
      if (part.is_text) {
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

}  // namespace sluice
