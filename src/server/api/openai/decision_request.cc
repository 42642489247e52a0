#include "server/api/openai/decision_request.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "base/json_ascii.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/python_text.h"

namespace sluice {
namespace {

using Type = DecisionQuestion::Type;

// Writes `value` like Python's json.dumps, so that models see the same text as on other servers.
// The parser limits the depth of a body, and therefore of this recursion.
void AppendPythonJson(std::string& out, const json::Value& value) {
  if (value.is_string()) return json::AppendAsciiString(out, value.as_string());
  if (value.is_array()) {
    out.push_back('[');
    for (const json::Value& item : value.as_array()) {
      if (&item != value.as_array().data()) out += ", ";
      AppendPythonJson(out, item);
    }
    out.push_back(']');
  } else if (value.is_object()) {
    out.push_back('{');
    for (const auto& member : value.as_object()) {
      if (&member != value.as_object().data()) out += ", ";
      json::AppendAsciiString(out, member.first);
      out += ": ";
      AppendPythonJson(out, member.second);
    }
    out.push_back('}');
  } else if (value.is_double()) {
    out += PythonFloat(value.as_double());
  } else {
    out += json::Write(value);
  }
}

std::string PythonJson(const json::Value& value) {
  std::string out;
  AppendPythonJson(out, value);
  return out;
}

// Returns a string unchanged, other values as JSON, and "" for null or an absent value.
std::string TextOfValue(const json::Value* value) {
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->as_string() : PythonJson(*value);
}

tl::unexpected<ApiError> BadQuestion(std::string_view id, std::string_view what) {
  return BadParameter(fmt::format("question '{}': {}", id, what), "questions");
}

// Refuses members that are not in `known`, because they might be meant to change the answer.
ApiStatus CheckMembers(const json::Value& object, std::string_view id, std::string_view what,
                       std::initializer_list<std::string_view> known) {
  for (const auto& member : object.as_object()) {
    if (std::ranges::find(known, member.first) == known.end())
      return BadQuestion(id, fmt::format("unknown field '{}'{}", member.first.substr(0, 64), what));
  }
  return {};
}

// Reads the description of a choice or a level: a text, or "" for null or an absent value.
ApiResult<std::string> ReadDescription(const json::Value& option, std::string_view id) {
  const json::Value* const description = Given(option, "description");
  if (description == nullptr) return std::string();
  if (!description->is_string())
    return BadQuestion(id, "the description of a choice or a level must be a text");
  return description->as_string();
}

ApiStatus CheckOptions(const DecisionQuestion& question) {
  const size_t most = question.type == Type::kScore ? kMostLevels : kMostChoices;
  if (question.options.size() > most)
    return BadQuestion(question.id, fmt::format("at most {} options are allowed", most));
  for (size_t i = 0; i < question.options.size(); ++i) {
    const DecisionOption& option = question.options[i];
    const bool is_twice =
        std::any_of(question.options.begin(), question.options.begin() + static_cast<ptrdiff_t>(i),
                    [&](const DecisionOption& other) {
                      return other.name == option.name && other.is_bool == option.is_bool;
                    });
    if (is_twice && question.type != Type::kScore)
      return BadQuestion(question.id, "duplicate option names");
  }
  return {};
}

// --- /v1/systemone -------------------------------------------------------------------------------

ApiStatus ReadCriteria(const json::Value* criteria, DecisionQuestion& question) {
  const bool is_given = criteria != nullptr && !criteria->is_null();
  switch (question.type) {
    case Type::kChoice:
      if (!is_given || !criteria->is_object() || criteria->as_object().empty()) {
        return BadQuestion(question.id,
                           "choice criteria must map option names to a description or null");
      }
      for (const auto& [name, description] : criteria->as_object())
        question.options.push_back({name, TextOfValue(&description)});
      return {};
    case Type::kNoul: {
      constexpr std::string_view kWrong =
          "noul criteria must be an object with true and false, or null";
      question.options = {{"yes", ""}, {"no", ""}};
      if (!is_given) return {};
      if (!criteria->is_object()) return BadQuestion(question.id, kWrong);
      for (const auto& [name, description] : criteria->as_object()) {
        if (name != "true" && name != "false") return BadQuestion(question.id, kWrong);
        question.options[name == "true" ? 0 : 1].description = TextOfValue(&description);
      }
      return {};
    }
    case Type::kScore:
      if (!is_given || !criteria->is_array() || criteria->as_array().size() < 2)
        return BadQuestion(question.id, "score criteria must be an ordered list of levels");
      for (const json::Value& level : criteria->as_array())
        question.options.push_back({TextOfValue(&level), ""});
      return {};
  }
  return {};
}

ApiResult<DecisionQuestion> ReadSystemOneQuestion(const std::string& id, const json::Value& given) {
  if (id.empty()) return BadParameter("question ids must be non-empty", "questions");
  if (!given.is_object()) return BadQuestion(id, "expected an object");
  API_RETURN_IF_ERROR(CheckMembers(given, id, "", {"type", "instructions", "criteria"}));
  const std::string type = TextAt(given, "type");
  DecisionQuestion question;
  question.id = id;
  if (type == "choice") {
    question.type = Type::kChoice;
  } else if (type == "noul") {
    question.type = Type::kNoul;
  } else if (type == "score") {
    question.type = Type::kScore;
  } else {
    return BadQuestion(id, fmt::format("unknown question type '{}'; supported: choice, noul, score",
                                       type.substr(0, 64)));
  }
  question.instructions = TextOfValue(given.Find("instructions"));
  API_RETURN_IF_ERROR(ReadCriteria(given.Find("criteria"), question));
  API_RETURN_IF_ERROR(CheckOptions(question));
  return question;
}

// --- /v1/decisions -------------------------------------------------------------------------------

// Reads a text, or a list of parts that are text or JSON.
ApiResult<std::string> ReadParts(const json::Value* content, const std::string& place) {
  if (content != nullptr && content->is_string()) return content->as_string();
  if (content == nullptr || !content->is_array())
    return BadParameter("expected a text or a list of parts", place);
  std::string text;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    const json::Value& part = content->as_array()[i];
    const std::string at = fmt::format("{}.{}", place, i);
    if (!part.is_object()) return BadParameter("expected an object", at);
    const std::string type = TextAt(part, "type");
    if (i > 0) text.push_back('\n');
    const json::Value* const words = part.Find("text");
    const json::Value* const data = part.Find("data");
    if ((type == "input_text" || type == "output_text") && words != nullptr && words->is_string()) {
      text += words->as_string();
    } else if (type == "input_json" && data != nullptr) {
      AppendPythonJson(text, *data);
    } else {
      return BadParameter(
          fmt::format(
              "parts of type '{}' are not supported; supported are input_text and input_json",
              type.substr(0, 64)),
          at);
    }
  }
  return text;
}

// Reads a text or messages. The state is the text of a single user message, or else the texts of
// all messages, each preceded by its role. System messages become instructions.
ApiStatus ReadInput(const json::Value* input, DecisionRequest& request) {
  if (input != nullptr && input->is_string()) {
    request.state = input->as_string();
    return {};
  }
  if (input == nullptr || !input->is_array() || input->as_array().empty())
    return BadParameter("expected a text or a list of messages", "input");
  std::vector<std::pair<std::string, std::string>> said;
  for (size_t i = 0; i < input->as_array().size(); ++i) {
    const json::Value& message = input->as_array()[i];
    const std::string place = fmt::format("input.{}", i);
    if (!message.is_object()) return BadParameter("expected an object", place);
    const std::string type = message.Find("type") == nullptr ? "message" : TextAt(message, "type");
    const std::string role = TextAt(message, "role");
    if (type != "message")
      return BadParameter(
          fmt::format("items of type '{}' are not supported; supported are messages",
                      type.substr(0, 64)),
          place);
    API_ASSIGN_OR_RETURN(std::string text, ReadParts(message.Find("content"), place + ".content"));
    if (role == "system" || role == "developer") {
      if (!request.instructions.empty()) request.instructions.push_back('\n');
      request.instructions += text;
    } else if (role == "user" || role == "assistant") {
      said.emplace_back(role, std::move(text));
    } else {
      return BadParameter("expected the role user, assistant, system or developer",
                          place + ".role");
    }
  }
  const bool is_one = said.size() == 1 && said.front().first == "user";
  for (const auto& [role, text] : said) {
    if (!request.state.empty()) request.state.push_back('\n');
    request.state += is_one ? text : fmt::format("{}: {}", role, text);
  }
  return {};
}

ApiStatus ReadChoices(const json::Value* choices, DecisionQuestion& question) {
  if (choices == nullptr || !choices->is_array() || choices->as_array().size() < 2)
    return BadQuestion(question.id, "choices must be a list of two or more");
  for (const json::Value& choice : choices->as_array()) {
    const json::Value* const value = choice.is_object() ? choice.Find("value") : nullptr;
    if (value == nullptr || (!value->is_string() && !value->is_bool()))
      return BadQuestion(question.id, "a choice must have a value that is a text or a boolean");
    API_RETURN_IF_ERROR(
        CheckMembers(choice, question.id, " of a choice", {"value", "description"}));
    API_ASSIGN_OR_RETURN(std::string description, ReadDescription(choice, question.id));
    question.options.push_back({value->is_bool() ? json::Write(*value) : value->as_string(),
                                std::move(description), value->is_bool()});
  }
  return {};
}

ApiStatus ReadLevels(const json::Value* levels, DecisionQuestion& question) {
  if (levels == nullptr || !levels->is_array() || levels->as_array().size() < 2)
    return BadQuestion(question.id, "levels must be an ordered list of two or more");
  for (const json::Value& level : levels->as_array()) {
    const json::Value* const label = level.is_object() ? level.Find("label") : nullptr;
    if (label == nullptr || !label->is_string())
      return BadQuestion(question.id, "a level must have a label");
    API_RETURN_IF_ERROR(CheckMembers(level, question.id, " of a level", {"label", "description"}));
    API_ASSIGN_OR_RETURN(std::string description, ReadDescription(level, question.id));
    question.options.push_back({label->as_string(), std::move(description)});
  }
  return {};
}

ApiResult<DecisionQuestion> ReadDecisionQuestion(const json::Value& given, size_t index) {
  DecisionQuestion question;
  question.id = given.is_object() ? TextAt(given, "name") : "";
  question.has_id = !question.id.empty();
  if (!question.has_id) question.id = std::to_string(index);
  if (!given.is_object()) return BadQuestion(question.id, "expected an object");
  API_RETURN_IF_ERROR(
      CheckMembers(given, question.id, "", {"name", "type", "instructions", "choices", "levels"}));
  API_ASSIGN_OR_RETURN(
      question.instructions,
      ReadParts(given.Find("instructions"), fmt::format("questions.{}.instructions", index)));
  const std::string type = TextAt(given, "type");
  if (type == "predicate") {
    question.type = Type::kNoul;
    question.options = {{"yes", ""}, {"no", ""}};
  } else if (type == "choice") {
    question.type = Type::kChoice;
    API_RETURN_IF_ERROR(ReadChoices(given.Find("choices"), question));
  } else if (type == "score") {
    question.type = Type::kScore;
    API_RETURN_IF_ERROR(ReadLevels(given.Find("levels"), question));
  } else {
    return BadQuestion(
        question.id, fmt::format("unknown question type '{}'; supported: predicate, choice, score",
                                 type.substr(0, 64)));
  }
  API_RETURN_IF_ERROR(CheckOptions(question));
  return question;
}

ApiStatus CheckCount(size_t count, size_t most) {
  if (count == 0) return BadParameter("questions: needs at least one question", "questions");
  if (count <= most) return {};
  return BadParameter(fmt::format("questions: at most {}, got {}", most, count), "questions");
}

}  // namespace

ApiResult<DecisionRequest> ReadSystemOneRequest(const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  DecisionRequest request;
  std::optional<std::string> instructions, salt;
  const json::Value::Object* kwargs = nullptr;
  const json::Value::Object* questions = nullptr;
  reader.Read("model", request.model);
  reader.Read("instructions", instructions);
  reader.Read("priority", request.priority);
  reader.Read("request_id", request.request_id);
  reader.Read("cache_salt", salt);
  if (reader.Read("chat_template_kwargs", kwargs, {.nullable = true}))
    request.chat_template_kwargs = *reader.Raw("chat_template_kwargs");
  reader.Read("questions", questions, {.required = true});
  const json::Value* const state = body.Find("state");
  if (state == nullptr) reader.AddMissing("state");
  if (!errors.empty()) return ValidationFailed(errors);
  request.state = TextOfValue(state);
  request.instructions = instructions.value_or("");
  request.cache_salt = salt.value_or("");
  for (const char* const refused : {"decision_template", "seed"}) {
    if (Given(body, refused) != nullptr)
      return Unsupported("another template of the questions", refused);
  }
  API_RETURN_IF_ERROR(CheckCount(questions->size(), kMostSystemOneQuestions));
  for (const auto& [id, given] : *questions) {
    API_ASSIGN_OR_RETURN(DecisionQuestion question, ReadSystemOneQuestion(id, given));
    request.questions.push_back(std::move(question));
  }
  return request;
}

ApiResult<DecisionRequest> ReadDecisionRequest(const json::Value& body) {
  if (!body.is_object()) return NotAnObject(body);
  std::vector<FieldError> errors;
  FieldReader reader(body, "body", &errors);
  DecisionRequest request;
  request.shape = DecisionRequest::Shape::kDecisions;
  const json::Value::Array* questions = nullptr;
  reader.Read("model", request.model);
  reader.Read("questions", questions, {.required = true});
  if (!errors.empty()) return ValidationFailed(errors);
  // Requests with a prompt_cache_key share cached prompts only with requests that have the same
  // key.
  request.cache_salt = TextAt(body, "prompt_cache_key");
  API_RETURN_IF_ERROR(ReadInput(body.Find("input"), request));
  API_RETURN_IF_ERROR(CheckCount(questions->size(), kMostDecisionQuestions));
  for (size_t i = 0; i < questions->size(); ++i) {
    API_ASSIGN_OR_RETURN(DecisionQuestion question, ReadDecisionQuestion((*questions)[i], i));
    request.questions.push_back(std::move(question));
  }
  return request;
}

std::vector<std::string> LabelsOf(const DecisionQuestion& question) {
  std::vector<std::string> labels;
  if (question.type == Type::kNoul) return {"yes", "no"};
  const char first = question.type == Type::kScore ? '0' : 'A';
  for (size_t i = 0; i < question.options.size(); ++i)
    labels.emplace_back(1, static_cast<char>(first + static_cast<char>(i)));
  return labels;
}

std::vector<std::string> AliasesOf(const DecisionQuestion& question) {
  if (question.type == Type::kNoul) return {"Yes", "No"};
  return {};
}

std::string TextOf(const DecisionQuestion& question) {
  std::string text;
  if (!question.instructions.empty()) text = fmt::format("Question: {}\n", question.instructions);
  const std::vector<std::string> labels = LabelsOf(question);
  for (size_t i = 0; i < labels.size(); ++i) {
    const DecisionOption& option = question.options[i];
    if (question.type == Type::kNoul) {
      if (!option.description.empty())
        text += fmt::format("{}: {}\n", labels[i], option.description);
    } else if (option.description.empty()) {
      text += fmt::format("{}: {}\n", labels[i], option.name);
    } else {
      text += fmt::format("{}: {} - {}\n", labels[i], option.name, option.description);
    }
  }
  switch (question.type) {
    case Type::kChoice: return text + "Answer with the letter of one option only.";
    case Type::kNoul: return text + "Answer with yes or no only.";
    case Type::kScore: return text + "Answer with the number of one level only.";
  }
  return text;
}

}  // namespace sluice
