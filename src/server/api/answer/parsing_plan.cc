#include "server/api/answer/parsing_plan.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "constraints/grammar_text.h"
#include "constraints/json_schema.h"

namespace sluice {
namespace {

bool IsTrue(const json::Value* value) {
  return value != nullptr && value->is_bool() && value->as_bool();
}

json::Value AnyObject() {
  return json::Value(json::Value::Object{{"type", "object"}});
}

bool Asks(const ServerConfig& config, const json::Value& function) {
  return config.tool_strict_level == "parameter" || IsTrue(function.Find("strict"));
}

// Returns the tools that may be called, each with the schema of its arguments. If several tools
// have the same name, only the first counts.
ApiResult<std::vector<CallableTool>> CallableTools(const ToolFields& choice,
                                                   const json::Value& tools,
                                                   const CallGrammar& grammar,
                                                   const ServerConfig& config) {
  std::vector<CallableTool> callable;
  std::set<std::string_view> names;
  const bool forced = choice.choice == ToolChoice::kRequired || choice.choice == ToolChoice::kNamed;
  const bool has_grammar = !grammar.trigger.empty();
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const json::Value& function = *tools.as_array()[i].Find("function");
    const std::string& name = function.Find("name")->as_string();
    if (choice.choice == ToolChoice::kNamed && name != choice.name) continue;
    if (!names.insert(name).second) continue;
    const bool strict = Asks(config, function);
    const json::Value* parameters = function.Find("parameters");
    const bool has_schema = parameters != nullptr && parameters->is_object();
    // A call that the model chooses to make follows the schema only if the request is strict.
    if (has_grammar && !(has_schema && (strict || forced))) {
      callable.push_back({name, AnyObject()});
      continue;
    }
    json::Value schema = has_schema ? *parameters : AnyObject();
    if (!has_schema) schema.Set("properties", json::Value::Object{});
    const std::string place = fmt::format("tools.{}.function.parameters", i);
    Result<CheckedSchema> checked = CheckJsonSchema(schema, strict);
    if (!checked && has_grammar && !strict) {
      LOG_WARNING("server",
                  "{}: the arguments are any object, as the schema cannot be followed: {}", place,
                  checked.error().message);
      callable.push_back({name, AnyObject()});
      continue;
    }
    if (!checked) return BadRequest(fmt::format("{}: {}", place, checked.error().message));
    if (!checked->not_enforced.empty()) {
      LOG_WARNING("server", "{}: the arguments may violate the schema's {}", place,
                  fmt::join(checked->not_enforced, ", "));
    }
    callable.push_back({name, std::move(checked->schema)});
  }
  return callable;
}

const CallGrammar& GrammarOf(const ToolParser& parser, const Tokenizer& tokenizer) {
  const bool newer = !parser.newer_token.empty() &&
                     tokenizer.TokenToId(std::string(parser.newer_token)).has_value();
  return newer ? parser.newer_grammar : parser.grammar;
}

bool IsConstrained(const ToolFields& tools, const json::Value& list, const CallGrammar& grammar,
                   const ServerConfig& config) {
  if (tools.choice != ToolChoice::kAuto) return true;
  if (grammar.trigger.empty()) return false;
  if (!tools.parallel || grammar.constrains_auto || config.tool_strict_level != "auto") return true;
  return std::ranges::any_of(list.as_array(), [](const json::Value& tool) {
    return IsTrue(tool.Find("function")->Find("strict"));
  });
}

ApiStatus PlanCalls(const ToolFields& tools, const json::Value& list, AnswerPlan& plan) {
  const ModelContext& model = *plan.options.model;
  AnswerParsing& parsing = *plan.generation.parsing;
  const CallGrammar& grammar = GrammarOf(*parsing.tools, *model.tokenizer);
  parsing.choice = tools.choice;
  parsing.first_call_only = !tools.parallel;
  if (!IsConstrained(tools, list, grammar, model.config)) return {};
  // If the request has its own constraint, the text contains no calls.
  if (tools.choice == ToolChoice::kAuto && plan.constraint) return {};
  API_ASSIGN_OR_RETURN(const std::vector<CallableTool> callable,
                       CallableTools(tools, list, grammar, model.config));
  const bool named = tools.choice == ToolChoice::kNamed;
  RequestedConstraint constraint;
  constraint.place = "tools";
  constraint.spec.any_whitespace = !model.config.json_without_whitespace;
  if (!grammar.trigger.empty()) {
    const CallCount count = named                                   ? CallCount::kOne
                            : tools.choice == ToolChoice::kRequired ? CallCount::kAtLeastOne
                                                                    : CallCount::kAny;
    constraint.spec.kind = ConstraintKind::kStructuralTag;
    parsing.constrains_channels = parsing.tools->channels != nullptr;
    parsing.held = count != CallCount::kAny && !parsing.constrains_channels;
    constraint.spec.text = json::Write(CallTag(grammar, callable, count, tools.parallel));
  } else {
    constraint.spec.text =
        json::Write(named ? callable.front().schema : CallListSchema(callable, tools.parallel));
    parsing.held = true;
    parsing.form = named ? CallForm::kArguments : CallForm::kList;
    parsing.named = tools.name;
  }
  if (const Status checked = CheckConstraintText(constraint.spec.kind, constraint.spec.text);
      !checked)
    return BadRequest(fmt::format("tools: {}", checked.error().message));
  plan.constraint = std::move(constraint);
  return {};
}

// Whether the constraint rules out calls: text that must match a schema or a regex is never a call,
// although it may look like one.
bool AdmitsNoCall(const ConstraintSpec& spec) {
  if (spec.kind == ConstraintKind::kJsonSchema) return spec.text != json::Write(AnyObject());
  return spec.kind == ConstraintKind::kRegex;
}

// Whether a reasoning mark is a special token, which detokenization would omit.
bool MarksAreSpecial(const ReasoningFormat& format, const Tokenizer& tokenizer) {
  const auto special = [&](const std::string& mark) {
    const std::optional<int32_t> id = tokenizer.TokenToId(mark);
    return id && tokenizer.IsSpecial(*id);
  };
  return std::ranges::any_of(format.start, special) || std::ranges::any_of(format.end, special);
}

}  // namespace

ApiStatus PlanParsing(const ToolFields& tools, const ConversationFields& conversation,
                      bool include_reasoning, AnswerPlan& plan) {
  const ModelContext& model = *plan.options.model;
  AnswerParsing parsing;
  parsing.reasoning = model.reasoning_parser;
  if (tools.choice != ToolChoice::kNone) {
    parsing.tools = model.tool_parser;
    parsing.types = std::make_shared<const ToolTypes>(
        conversation.tools, parsing.tools != nullptr && parsing.tools->reads_schemas);
  }
  const bool may_call =
      tools.choice != ToolChoice::kAuto || !plan.constraint || !AdmitsNoCall(plan.constraint->spec);
  if (!may_call && parsing.tools != nullptr && parsing.tools->channels == nullptr)
    parsing.tools = nullptr;
  if (parsing.tools == nullptr && parsing.reasoning == nullptr) return {};
  // Template arguments in the request take precedence over those on the command line.
  for (const json::Value* kwargs :
       {&model.default_template_kwargs, &conversation.chat_template_kwargs}) {
    if (const auto thinking = ThinkingSwitch(*kwargs)) parsing.thinking = thinking;
  }
  parsing.include_reasoning = include_reasoning;
  parsing.held = plan.constraint.has_value();
  parsing.holds_thoughts = model.config.constrain_reasoning;
  bool& skips = plan.generation.skip_special_tokens;
  if (parsing.tools != nullptr) skips &= !parsing.tools->keeps_special_tokens;
  if (parsing.reasoning != nullptr)
    skips &= !MarksAreSpecial(parsing.reasoning->format, *model.tokenizer);
  plan.generation.parsing = std::move(parsing);
  if (plan.generation.parsing->tools != nullptr)
    API_RETURN_IF_ERROR(PlanCalls(tools, conversation.tools, plan));
  plan.options.parsed = true;
  plan.options.must_call = plan.generation.parsing->must_call();
  return {};
}

}  // namespace sluice
