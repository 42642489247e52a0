#include "server/api/request/constraint_fields.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "constraints/grammar_text.h"
#include "constraints/json_schema.h"
#include "server/api/common/field_reader.h"

namespace sluice {
namespace {

using Read = ApiResult<std::optional<RequestedConstraint>>;

tl::unexpected<ApiError> WrongType(std::string_view place, std::string_view expected,
                                   const json::Value* found) {
  return ValidationFailed({{fmt::format("body.{}", place), std::string(expected),
                            found == nullptr ? "nothing" : Describe(*found)}});
}

ApiError NotEnforceable(std::string_view place, const Error& error) {
  return BadRequest(fmt::format("{}: {}", place, error.message)).value();
}

Read FromSchema(const json::Value& schema, bool strict, std::string place) {
  Result<CheckedSchema> checked = CheckJsonSchema(schema, strict);
  if (!checked) return tl::unexpected<ApiError>(NotEnforceable(place, checked.error()));
  if (!checked->not_enforced.empty()) {
    LOG_WARNING("server", "{}: the answer may violate the schema's {}", place,
                fmt::join(checked->not_enforced, ", "));
  }
  RequestedConstraint constraint;
  constraint.spec = {ConstraintKind::kJsonSchema, json::Write(checked->schema)};
  constraint.place = std::move(place);
  return constraint;
}

Read FromAnyObject(std::string place) {
  return FromSchema(json::Value(json::Value::Object{{"type", "object"}}), false, std::move(place));
}

Read FromText(ConstraintKind kind, std::string text, std::string place,
              std::optional<std::string> param = std::nullopt) {
  if (const Status checked = CheckConstraintText(kind, text); !checked)
    return tl::unexpected<ApiError>(NotEnforceable(place, checked.error()));
  return RequestedConstraint{{kind, std::move(text)}, std::move(place), std::move(param)};
}

// Reads a JSON schema: an object, or a string that contains the object's JSON.
Read FromSchemaOrText(const json::Value& value, std::string place) {
  if (value.is_object()) return FromSchema(value, false, std::move(place));
  if (!value.is_string()) return WrongType(place, "a JSON schema or its text", &value);
  const Result<json::Value> parsed = json::Parse(value.as_string());
  if (!parsed) {
    return BadRequest(
        fmt::format("Invalid JSON grammar specification: {} must be a JSON schema ({})", place,
                    parsed.error().message));
  }
  if (!parsed->is_object()) {
    return BadRequest(
        fmt::format("Invalid JSON grammar specification: {} must be an object", place));
  }
  return FromSchema(*parsed, false, std::move(place));
}

Read FromRegex(const json::Value& value, std::string place) {
  if (!value.is_string()) return WrongType(place, "a string", &value);
  return FromText(ConstraintKind::kRegex, value.as_string(), std::move(place));
}

Read FromChoice(const json::Value& value, std::string place) {
  if (!value.is_array()) return WrongType(place, "a list of strings", &value);
  if (value.as_array().empty()) return BadRequest(fmt::format("{} must not be empty", place));
  std::vector<std::string> choices;
  for (const json::Value& choice : value.as_array()) {
    if (!choice.is_string()) {
      return WrongType(fmt::format("{}.{}", place, choices.size()), "a string", &choice);
    }
    choices.push_back(choice.as_string());
  }
  return FromText(ConstraintKind::kEbnf, ChoiceGrammar(choices), std::move(place));
}

Read FromGrammar(const json::Value& value, std::string place) {
  if (!value.is_string()) return WrongType(place, "a string", &value);
  if (value.as_string().empty())
    return BadRequest(fmt::format("{} cannot be an empty string", place));
  const ConstraintKind kind =
      IsLark(value.as_string()) ? ConstraintKind::kLark : ConstraintKind::kEbnf;
  return FromText(kind, value.as_string(), std::move(place));
}

// `value`: a tag of either layout, or its text. `field`: name of the request's field.
Read FromStructuralTag(const json::Value& value, const std::string& field) {
  Result<json::Value> tag = value;
  if (value.is_string()) tag = json::Parse(value.as_string());
  const Result<std::string> text = tag.and_then(StructuralTagText);
  if (!text) {
    return BadParameter(
        fmt::format("Invalid {} structural_tag specification: {}.", field, text.error().message),
        field);
  }
  return FromText(ConstraintKind::kStructuralTag, *text, field, field);
}

// `field`: name of the request's field. `place`: where `value` is inside it.
Read FromKind(std::string_view kind, const json::Value& value, std::string place,
              const std::string& field) {
  if (kind == "json") return FromSchemaOrText(value, std::move(place));
  if (kind == "regex") return FromRegex(value, std::move(place));
  if (kind == "choice") return FromChoice(value, std::move(place));
  if (kind == "grammar" || kind == "ebnf") return FromGrammar(value, std::move(place));
  if (kind == "structural_tag") return FromStructuralTag(value, field);
  CHECK(kind == "json_object");
  bool wanted = false;
  if (!ReadValue(value, {}, wanted)) return WrongType(place, "true or false", &value);
  return wanted ? FromAnyObject(std::move(place)) : std::nullopt;
}

// Returns the value of the first of `names` that `format` has, and appends that name to `place`;
// null if there is none.
const json::Value* FirstOf(const json::Value& format, const std::vector<const char*>& names,
                           std::string& place) {
  for (const char* name : names) {
    const json::Value* value = Given(format, name);
    if (value == nullptr) continue;
    place += fmt::format(".{}", name);
    return value;
  }
  return nullptr;
}

// Returns the schema in {"name": ..., "schema": ...}, else `value` itself.
const json::Value& SchemaIn(const json::Value& value, std::string& place) {
  const json::Value* inner = value.is_object() ? Given(value, "schema") : nullptr;
  if (inner == nullptr || (!inner->is_object() && !inner->is_string()) ||
      Given(value, "type") != nullptr || Given(value, "properties") != nullptr)
    return value;
  place += ".schema";
  return *inner;
}

// Reads a schema as other servers accept it: an object, its text, or either in {"name": ...,
// "schema": ...}.
Read FromForeignSchema(const json::Value& value, std::string place) {
  const json::Value& schema = SchemaIn(value, place);
  return FromSchemaOrText(schema, std::move(place));
}

// A type of response_format that OpenAI does not have, and the members that may contain its
// constraint.
struct ForeignFormat {
  std::string_view type;
  std::string_view kind;             // as in FromKind
  std::vector<const char*> members;  // names of members, one of which contains the constraint
};

const ForeignFormat* FindForeignFormat(std::string_view type) {
  static const ForeignFormat kFormats[] = {
      {"json", "json", {"value", "schema", "json_schema"}},    // TGI, trtllm-serve
      {"regex", "regex", {"value", "regex", "pattern"}},       // TGI, trtllm-serve, Together
      {"regex_schema", "regex", {"regex_schema"}},             // LMDeploy
      {"grammar", "grammar", {"grammar", "value"}},            // Fireworks, MLC
      {"ebnf", "grammar", {"ebnf", "value"}},                  // trtllm-serve
      {"lark_grammar", "grammar", {"lark_grammar", "value"}},  // llguidance
  };
  for (const ForeignFormat& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

Read ReadForeignFormat(const json::Value& format, const ForeignFormat& foreign) {
  std::string place = "response_format";
  const json::Value* value = FirstOf(format, foreign.members, place);
  if (value == nullptr) {
    return WrongType(
        fmt::format("response_format.{}", foreign.members.front()),
        fmt::format("the constraint of the answer, because the type is \"{}\"", foreign.type),
        nullptr);
  }
  if (foreign.kind == "json") return FromForeignSchema(*value, std::move(place));
  // Accepts Perplexity's {"regex": {"regex": ...}}.
  if (const json::Value* inner = value->is_object() ? Given(*value, foreign.kind) : nullptr) {
    place += fmt::format(".{}", foreign.kind);
    value = inner;
  }
  return FromKind(foreign.kind, *value, std::move(place), "response_format");
}

Read ReadResponseFormat(const json::Value& format) {
  const std::string field = "response_format";
  if (!format.is_object()) return WrongType(field, "an object", &format);
  const std::string kind = TextAt(format, "type");
  if (kind == "text") return std::nullopt;
  std::string place = field;
  if (kind == "json_object") {
    const json::Value* schema = SchemaBesideObject(format, place);
    return schema == nullptr ? FromAnyObject(field) : FromSchemaOrText(*schema, std::move(place));
  }
  if (kind == "structural_tag") return FromStructuralTag(format, field);
  if (const ForeignFormat* foreign = FindForeignFormat(kind))
    return ReadForeignFormat(format, *foreign);
  if (kind != "json_schema") {
    return WrongType("response_format.type",
                     R"("text", "json_object", "json_schema" or "structural_tag")",
                     format.Find("type"));
  }
  const json::Value* described = format.Find("json_schema");
  if (!IsTruthy(described)) {
    // llama.cpp and TGI use these names for the schema.
    if (const json::Value* schema = FirstOf(format, {"schema", "value"}, place))
      return FromForeignSchema(*schema, std::move(place));
    return BadParameter(
        "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
        field);
  }
  if (!described->is_object())
    return WrongType("response_format.json_schema", "an object", described);
  std::vector<FieldError> errors;
  FieldReader reader(*described, "body.response_format.json_schema", &errors);
  std::string name;
  bool strict = false;
  const json::Value::Object* members = nullptr;
  reader.Read("name", name, {.required = true});
  reader.Read("schema", members, {.nullable = true});
  reader.Read("strict", strict, {.nullable = true});
  if (!errors.empty()) return ValidationFailed(errors);
  if (members == nullptr) {
    return BadParameter("response_format.json_schema.schema must be a JSON schema, found nothing",
                        field);
  }
  return FromSchema(*described->Find("schema"), strict, "response_format.json_schema.schema");
}

Read ReadStructuredOutputs(const json::Value& outputs, EndpointKind endpoint) {
  const std::string field = "structured_outputs";
  if (!outputs.is_object()) return WrongType(field, "an object", &outputs);
  std::vector<std::string_view> given;
  for (const std::string_view kind :
       {"json", "regex", "choice", "grammar", "json_object", "structural_tag"}) {
    if (Given(outputs, kind) != nullptr) given.push_back(kind);
  }
  if (given.size() != 1) {
    const std::string message = fmt::format(
        "structured_outputs must contain exactly one of json, regex, choice, grammar, json_object "
        "and "
        "structural_tag, found {}",
        given.empty() ? "none" : fmt::format("{}", fmt::join(given, ", ")));
    // As in vLLM, the error has a `param` only for completions with more than one kind.
    if (endpoint == EndpointKind::kCompletion && !given.empty())
      return BadParameter(message, field);
    return BadRequest(message);
  }
  const std::string_view kind = given.front();
  const json::Value& value = *outputs.Find(kind);
  std::string place = fmt::format("{}.{}", field, kind);
  if (kind == "structural_tag" && !value.is_string())
    return WrongType(place, "the text of a JSON object", &value);
  return FromKind(kind, value, std::move(place), field);
}

// Names that other servers use for top-level fields, and the kind of their values.
struct ForeignField {
  const char* name;
  std::string_view kind;
};
constexpr ForeignField kForeignFields[] = {
    {"json_schema", "json"},        // llama.cpp, SGLang, TabbyAPI
    {"regex", "regex"},             // SGLang
    {"regex_pattern", "regex"},     // TabbyAPI
    {"ebnf", "grammar"},            // SGLang
    {"grammar", "grammar"},         // llama.cpp; TGI and mistral.rs, as an object with type and
                                    // value
    {"grammar_string", "grammar"},  // TabbyAPI
    {"structural_tag", "structural_tag"},   // SGLang, vLLM 0.8
    {"guided_json_object", "json_object"},  // vLLM 0.8
};

Read ReadForeignField(const json::Value& value, const ForeignField& field) {
  const std::string name = field.name;
  // Clients of llama.cpp send an empty grammar to mean none.
  if (value.is_string() && value.as_string().empty()) return std::nullopt;
  if (field.kind == "json") return FromForeignSchema(value, name);
  if (name != "grammar" || !value.is_object()) return FromKind(field.kind, value, name, name);
  const std::string type = TextAt(value, "type");
  const json::Value* held = Given(value, "value");
  const bool is_schema = type == "json" || type == "json_object" || type == "json_schema";
  if (!is_schema && type != "regex" && type != "lark" && type != "gbnf") {
    return WrongType("grammar.type", R"("json", "json_schema", "regex", "gbnf" or "lark")",
                     value.Find("type"));
  }
  if (held == nullptr) return WrongType("grammar.value", "the constraint of the answer", held);
  if (is_schema) return FromForeignSchema(*held, "grammar.value");
  return FromKind(type == "regex" ? "regex" : "grammar", *held, "grammar.value", name);
}

// Reads ollama's `format`: "json" or a schema.
Read ReadOllamaFormat(const json::Value& format) {
  if (format == json::Value("json")) return FromAnyObject("format");
  if (format == json::Value("")) return std::nullopt;
  if (!format.is_object()) return WrongType("format", R"("json" or a JSON schema)", &format);
  return FromSchema(format, false, "format");
}

// Refuses llama.cpp's grammars that apply only after a trigger.
ApiStatus RefuseLazyGrammars(const json::Value& body) {
  for (const char* name : {"grammar_lazy", "grammar_triggers"}) {
    if (IsTruthy(body.Find(name))) return Unsupported("a grammar that waits for a trigger", name);
  }
  return {};
}

// Reads trtllm-serve's `guided_decoding`.
Read ReadGuidedDecoding(const json::Value& guided) {
  const std::string field = "guided_decoding";
  if (!guided.is_object()) return WrongType(field, "an object", &guided);
  std::vector<std::string_view> given;
  for (const std::string_view kind :
       {"json", "regex", "grammar", "ebnf", "json_object", "structural_tag"}) {
    const json::Value* value = Given(guided, kind);
    if (value != nullptr && !(value->is_bool() && !value->as_bool())) given.push_back(kind);
  }
  if (given.empty()) return std::nullopt;
  if (given.size() > 1) {
    return BadParameter(fmt::format("guided_decoding must contain one kind of guide, found {}",
                                    fmt::join(given, ", ")),
                        field);
  }
  const std::string_view kind = given.front();
  return FromKind(kind, *guided.Find(kind), fmt::format("{}.{}", field, kind), field);
}

// The fields that ReadConstraint reads, except kForeignFields.
constexpr std::string_view kOwnFields[] = {
    "response_format", "structured_outputs", "guided_json",     "guided_regex",
    "guided_choice",   "guided_grammar",     "guided_decoding", "nvext",
    "format",          "grammar_lazy",       "grammar_triggers"};

}  // namespace

bool IsConstraintField(std::string_view name) {
  return std::ranges::count(kOwnFields, name) > 0 ||
         std::ranges::count(kForeignFields, name, &ForeignField::name) > 0;
}

// Looks for the names that llama.cpp, Together and Cohere use.
const json::Value* SchemaBesideObject(const json::Value& format, std::string& place) {
  const json::Value* schema = FirstOf(format, {"schema", "json_schema", "value"}, place);
  return schema == nullptr ? nullptr : &SchemaIn(*schema, place);
}

Read ReadConstraint(const json::Value& body, const ServerConfig& config, EndpointKind kind) {
  std::optional<RequestedConstraint> found;
  std::vector<std::string> places;
  const auto add = [&](Read read) -> ApiStatus {
    if (!read) return tl::unexpected<ApiError>(std::move(read).error());
    if (!*read) return {};
    places.push_back((*read)->place);
    found = *std::move(read);
    return {};
  };
  if (const json::Value* format = Given(body, "response_format"))
    API_RETURN_IF_ERROR(add(ReadResponseFormat(*format)));
  if (const json::Value* outputs = Given(body, "structured_outputs"))
    API_RETURN_IF_ERROR(add(ReadStructuredOutputs(*outputs, kind)));
  // NVIDIA NIM puts vLLM's older fields into this object.
  const json::Value* nim = Given(body, "nvext");
  for (const char* guide : {"json", "regex", "choice", "grammar"}) {
    const std::string field = fmt::format("guided_{}", guide);
    if (const json::Value* value = Given(body, field))
      API_RETURN_IF_ERROR(add(FromKind(guide, *value, field, field)));
    if (const json::Value* value = nim == nullptr ? nullptr : Given(*nim, field))
      API_RETURN_IF_ERROR(add(FromKind(guide, *value, "nvext." + field, "nvext")));
  }
  if (const json::Value* guided = Given(body, "guided_decoding"))
    API_RETURN_IF_ERROR(add(ReadGuidedDecoding(*guided)));
  for (const ForeignField& field : kForeignFields) {
    if (const json::Value* value = Given(body, field.name))
      API_RETURN_IF_ERROR(add(ReadForeignField(*value, field)));
  }
  if (const json::Value* format = Given(body, "format"))
    API_RETURN_IF_ERROR(add(ReadOllamaFormat(*format)));
  API_RETURN_IF_ERROR(RefuseLazyGrammars(body));
  if (places.size() > 1) {
    return BadRequest(
        fmt::format("an answer can have one constraint, but these are given: {}; omit all but one",
                    fmt::join(places, ", ")));
  }
  if (found) found->spec.any_whitespace = !config.json_without_whitespace;
  return found;
}

Read ReadSchemaConstraint(const json::Value& schema, bool strict, std::string place,
                          const ServerConfig& config) {
  // A schema next to the type json_object may be given as text.
  API_ASSIGN_OR_RETURN(std::optional<RequestedConstraint> constraint,
                       schema.is_object() ? FromSchema(schema, strict, std::move(place))
                                          : FromSchemaOrText(schema, std::move(place)));
  constraint->spec.any_whitespace = !config.json_without_whitespace;
  return constraint;
}

ApiError ConstraintError(const RequestedConstraint& constraint, const Error& error) {
  if (error.code != ErrorCode::kInvalidArgument) return FromError(error);
  const std::string message = fmt::format("{}: {}", constraint.place, error.message);
  return constraint.param ? BadParameter(message, *constraint.param).value()
                          : BadRequest(message).value();
}

}  // namespace sluice
