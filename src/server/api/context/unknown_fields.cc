#include "server/api/context/unknown_fields.h"

#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/api/common/python_text.h"
#include "server/api/context/openapi.h"

namespace sluice {
namespace {

using Names = std::set<std::string, std::less<>>;

constexpr size_t kMaxShownBytes = 100;

// Fields that are read but not listed in /openapi.json. Most of them are refused by name if they
// request something.
constexpr std::string_view kReadUnseen[] = {
    "detokenize",
    "disaggregated_params",
    "early_stopping",
    "ebnf",
    "ec_transfer_params",
    "enable_response_messages",
    "format",
    "grammar",
    "grammar_lazy",
    "grammar_string",
    "grammar_triggers",
    "guided_choice",
    "guided_decoding",
    "guided_decoding_backend",
    "guided_grammar",
    "guided_json",
    "guided_json_object",
    "guided_regex",
    "guided_whitespace_pattern",
    "json_schema",
    "kv_transfer_params",
    "length_penalty",
    "lora_request",
    "max_tool_calls",
    "mcp_servers",
    "media_io_kwargs",
    "mm_processor_kwargs",
    "nvext",
    "output_format",
    "prompt_ignore_length",
    "prompt_token_ids",
    "regex",
    "regex_pattern",
    "request_ids",
    "response_format",
    "return_assistant_tokens_mask",
    "return_context_logits",
    "structural_tag",
    "structured_outputs",
    "suffix",
    "thinking_token_budget",
    "top_p_min",
    "use_beam_search",
    "verbosity",
    "vllm_xargs",
    "watermarking",
};

// Collects the names of all properties in a schema and in the schemas inside it.
void AddProperties(const json::Value& schema, Names& names) {
  if (schema.is_array()) {
    for (const json::Value& item : schema.as_array()) AddProperties(item, names);
  } else if (schema.is_object()) {
    for (const auto& [key, value] : schema.as_object()) {
      if (key == "properties" && value.is_object()) {
        for (const auto& [name, ignored] : value.as_object()) names.insert(name);
      }
      AddProperties(value, names);
    }
  }
}

// One list for all routes: a name that any route reads is not a typo.
const Names& KnownFields() {
  static const Names& known = *[] {
    auto* names = new Names(std::begin(kReadUnseen), std::end(kReadUnseen));
    const Result<json::Value> schemas = json::Parse(OpenApiSchemas());
    CHECK(schemas.has_value(), "the schemas of /openapi.json are JSON");
    AddProperties(*schemas, *names);
    return names;
  }();
  return known;
}

}  // namespace

std::string UnknownFields::Warn(const json::Value& body) {
  if (!body.is_object()) return "";
  std::vector<std::string> found;
  for (const auto& [name, value] : body.as_object()) {
    if (KnownFields().contains(name)) continue;
    std::string shown(Utf8Prefix(name, kMaxShownBytes));
    const MutexLock lock(mutex_);
    if (warned_.size() < kMaxWarned && warned_.insert(shown).second)
      found.push_back(PythonRepr(shown));
  }
  if (found.empty()) return "";
  // The wording is vLLM's.
  std::string line =
      fmt::format("The following fields were present in the request but ignored: {{{}}}",
                  fmt::join(found, ", "));
  LOG_WARNING("server", "{}", line);
  return line;
}

}  // namespace sluice
