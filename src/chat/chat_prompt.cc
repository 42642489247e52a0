#include "chat/chat_prompt.h"

#include <algorithm>

#include "base/json_count.h"
#include "chat/jinja/text.h"

namespace sluice {

namespace {

using ContentFormat = ChatTemplate::ContentFormat;

// Appended to the message that the model continues, so that the message's end can be found in the
// prompt.
constexpr std::string_view kContinuation = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kContinuationWord = "CONTINUE_FINAL_MESSAGE_TAG";

// Names that chat_template_kwargs must not set.
constexpr std::string_view kOwnNames[] = {"messages",
                                          "conversation",
                                          "tools",
                                          "documents",
                                          "tokenize",
                                          "padding",
                                          "truncation",
                                          "max_length",
                                          "return_dict",
                                          "return_tensors",
                                          "chat_template",
                                          "continue_final_message",
                                          "add_generation_prompt",
                                          "bos_token",
                                          "eos_token",
                                          "pad_token",
                                          "unk_token"};

// Limit of chat_template_kwargs, which contain only small settings.
constexpr size_t kMaxKwargsBytes = size_t{16} << 10;
constexpr int kMaxKwargsDepth = 16;
// Maximum number of JSON values in a conversation's tool-call arguments, over all calls.
constexpr size_t kMaxArgumentValues = size_t{1} << 20;

int Depth(const json::Value& value) {
  int deepest = 0;
  if (value.is_array()) {
    for (const json::Value& item : value.as_array()) deepest = std::max(deepest, Depth(item));
    return deepest + 1;
  }
  if (value.is_object()) {
    for (const auto& [name, member] : value.as_object()) deepest = std::max(deepest, Depth(member));
    return deepest + 1;
  }
  return 0;
}

tl::unexpected<Error> Bad(const std::string& place, std::string message) {
  return Fail(ErrorCode::kInvalidArgument, place + ": " + std::move(message), place);
}

std::string SpecialText(const json::Value& value) {
  if (value.is_string()) return value.as_string();
  const json::Value* content = value.Find("content");
  return content != nullptr && content->is_string() ? content->as_string() : "";
}

// Returns the text of one content part.
Result<std::string> PartText(const json::Value& part, const std::string& place) {
  if (part.is_string()) return part.as_string();
  if (!part.is_object())
    return Bad(place, std::string("a part must be an object, not ") + json::TypeName(part.type()));
  const json::Value* type = part.Find("type");
  std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
  if (name.empty() && part.Find("text") != nullptr) name = "text";
  if (name.empty()) return Bad(place, "a part needs a \"type\"");
  if (name != "text" && name != "input_text" && name != "output_text" && name != "refusal" &&
      name != "thinking") {
    return Bad(place, "parts of type '" + name + "' are not supported: this model takes text only");
  }
  const json::Value* text = part.Find(name == "refusal" || name == "thinking" ? name : "text");
  if (text == nullptr || !text->is_string())
    return Bad(place, "a part of type '" + name + "' needs a string with its text");
  return text->as_string();
}

bool IsImage(const json::Value& part) {
  const json::Value* type = part.Find("type");
  return type != nullptr && type->is_string() &&
         (type->as_string() == "image_url" || type->as_string() == "input_image" ||
          type->as_string() == "image");
}

// In kString format, all images of a message come before its text, as in vLLM.
Result<json::Value> NormalizeContent(const json::Value& content, ContentFormat format,
                                     const std::string& place, const std::string& image_text) {
  std::vector<std::string> texts;
  json::Value::Array parts;
  size_t num_images = 0;
  const auto add = [&](std::string text) {
    if (format == ContentFormat::kParts)
      parts.push_back(json::Value::Object{{"type", "text"}, {"text", std::move(text)}});
    else
      texts.push_back(std::move(text));
  };
  if (content.is_string()) {
    add(content.as_string());
  } else if (content.is_array()) {
    for (size_t i = 0; i < content.as_array().size(); ++i) {
      const json::Value& part = content.as_array()[i];
      if (!image_text.empty() && IsImage(part)) {
        if (format == ContentFormat::kParts)
          parts.push_back(json::Value::Object{{"type", "image"}});
        else
          texts.insert(texts.begin() + static_cast<std::ptrdiff_t>(num_images++), image_text);
        continue;
      }
      ASSIGN_OR_RETURN(std::string text, PartText(part, place + "[" + std::to_string(i) + "]"));
      add(std::move(text));
    }
  } else if (!content.is_null()) {
    return Bad(place, std::string("must be a string or a list of parts, not ") +
                          json::TypeName(content.type()));
  }
  if (format == ContentFormat::kParts) return json::Value(std::move(parts));
  std::string joined;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) joined += "\n";
    joined += texts[i];
  }
  return json::Value(std::move(joined));
}

// The form in which a template receives the arguments of tool calls.
enum class ArgumentForm {
  kAsWritten,  // as an object, or as text if they are not a JSON object
  kObjects,    // always as an object, for templates that iterate over arguments
  kTexts       // always as text, for templates that concatenate it
};

struct ReadCalls {
  ArgumentForm form = ArgumentForm::kAsWritten;
  size_t num_values = 0;  // number of JSON values in the arguments read so far
  bool has_calls = false;
  // Whether the arguments of at least one call are not a JSON object.
  bool has_no_json = false;
  // Whether content that is a string is passed as a string, not as a list of parts.
  bool keeps_strings = false;
};

// Name of the member that contains arguments that are not a JSON object, so that nothing is lost.
constexpr std::string_view kWrittenArguments = "arguments";

// Returns the arguments of one earlier call in the form that the template receives.
Result<json::Value> NormalizeArguments(const json::Value* arguments, const std::string& place,
                                       ReadCalls& read) {
  read.has_calls = true;
  const bool has_none = arguments == nullptr || arguments->is_null() ||
                        (arguments->is_string() && arguments->as_string().empty());
  if (has_none) {
    return read.form == ArgumentForm::kTexts ? json::Value("{}")
                                             : json::Value(json::Value::Object{});
  }
  if (!arguments->is_string())
    return read.form == ArgumentForm::kTexts ? json::Value(json::Write(*arguments)) : *arguments;
  const std::string& text = arguments->as_string();
  read.num_values += json::Measure(text).values;
  if (read.num_values > kMaxArgumentValues) {
    return Bad(place, "the arguments of all calls together hold more than " +
                          std::to_string(kMaxArgumentValues) + " JSON values");
  }
  if (read.form == ArgumentForm::kTexts) return *arguments;
  Result<json::Value> parsed = json::Parse(text);
  if (parsed && parsed->is_object()) return *std::move(parsed);
  read.has_no_json = true;
  if (read.form == ArgumentForm::kAsWritten) return *arguments;
  return json::Value(json::Value::Object{{std::string(kWrittenArguments), text}});
}

Result<json::Value> NormalizeToolCalls(const json::Value& calls, const std::string& place,
                                       ReadCalls& read) {
  if (!calls.is_array())
    return Bad(place, std::string("must be a list, not ") + json::TypeName(calls.type()));
  json::Value::Array result;
  for (size_t i = 0; i < calls.as_array().size(); ++i) {
    const std::string at = place + "[" + std::to_string(i) + "]";
    json::Value call = calls.as_array()[i];
    const json::Value* found = call.Find("function");
    if (found == nullptr || !found->is_object())
      return Bad(at, "a tool call needs an object \"function\"");
    json::Value function = *found;
    ASSIGN_OR_RETURN(json::Value arguments, NormalizeArguments(function.Find("arguments"),
                                                               at + ".function.arguments", read));
    function.Set("arguments", std::move(arguments));
    call.Set("function", std::move(function));
    result.push_back(std::move(call));
  }
  return json::Value(std::move(result));
}

Result<json::Value> NormalizeMessage(const json::Value& message, ContentFormat format,
                                     const std::string& place, const std::string& image_text,
                                     ReadCalls& read) {
  if (!message.is_object())
    return Bad(place, std::string("must be an object, not ") + json::TypeName(message.type()));
  const json::Value* role = message.Find("role");
  if (role == nullptr || !role->is_string()) return Bad(place, "needs a string \"role\"");
  const json::Value* content = message.Find("content");
  json::Value normal;
  if (read.keeps_strings && content != nullptr && content->is_string()) {
    normal = *content;
  } else {
    ASSIGN_OR_RETURN(normal, NormalizeContent(content == nullptr ? json::Value() : *content, format,
                                              place + ".content", image_text));
  }
  json::Value result{json::Value::Object{{"role", *role}, {"content", std::move(normal)}}};
  for (const auto& [name, value] : message.as_object()) {
    if (name == "role" || name == "content" || value.is_null()) continue;
    if (name == "tool_calls") {
      ASSIGN_OR_RETURN(json::Value calls, NormalizeToolCalls(value, place + ".tool_calls", read));
      // An empty list is left out, because templates would treat the message as one with calls.
      if (!calls.as_array().empty()) result.Set(name, std::move(calls));
    } else if (name == "reasoning" || name == "reasoning_content") {
      result.Set("reasoning", value);
      result.Set("reasoning_content", value);
    } else {
      // Does not use Set(), which searches for the name: a message with many names would take
      // quadratic time.
      result.as_object().emplace_back(name, value);
    }
  }
  return result;
}

Result<json::Value> NormalizeAll(const json::Value& messages, ContentFormat format,
                                 const std::string& image_text, ReadCalls& read) {
  if (!messages.is_array()) {
    return Bad("messages", std::string("must be a list, not ") + json::TypeName(messages.type()));
  }
  json::Value::Array result;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    ASSIGN_OR_RETURN(json::Value message,
                     NormalizeMessage(messages.as_array()[i], format,
                                      "messages[" + std::to_string(i) + "]", image_text, read));
    result.push_back(std::move(message));
  }
  return json::Value(std::move(result));
}

// Adds `thinking` to assistant messages with reasoning. Templates that read `thinking` accept only
// one of `thinking` and content in a message with calls, and render both in the same way. So the
// content is appended to `thinking`.
void NameThinking(json::Value& messages) {
  for (json::Value& message : messages.as_array()) {
    const json::Value* reasoning = message.Find("reasoning");
    if (reasoning == nullptr || !reasoning->is_string() || reasoning->as_string().empty() ||
        message.Find("thinking") != nullptr)
      continue;
    std::string thinking = reasoning->as_string();
    const json::Value* content = message.Find("content");
    if (message.Find("tool_calls") != nullptr && content->is_string() &&
        !content->as_string().empty()) {
      thinking += "\n\n" + content->as_string();
      message.Set("content", "");
    }
    message.Set("thinking", std::move(thinking));
  }
}

// Appends kContinuation to the text of the last message. Returns the original text, trimmed.
Result<std::string> MarkLast(json::Value& messages) {
  if (messages.as_array().empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "continue_final_message is set but there are no messages", "messages");
  }
  json::Value& last = messages.as_array().back();
  json::Value content = *last.Find("content");
  std::string text;
  if (content.is_string()) {
    text = content.as_string();
    last.Set("content", text + std::string(kContinuation));
  } else {
    if (content.as_array().empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "continue_final_message is set but we could not find any text to continue in the "
                  "final message!",
                  "messages");
    }
    json::Value& part = content.as_array().back();
    if (part.Find("text") == nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  "continue_final_message is set but the final message ends with an image",
                  "messages");
    }
    text = part.Find("text")->as_string();
    part.Set("text", text + std::string(kContinuation));
    last.Set("content", std::move(content));
  }
  return std::string(jinja::Strip(text, jinja::Side::kBoth));
}

Result<std::string> CutAtMark(std::string prompt, const std::string& text) {
  const size_t mark = prompt.rfind(kContinuationWord);
  if (mark == std::string::npos || prompt.find(text) == std::string::npos) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "continue_final_message is set but the final message does not appear in the chat after "
        "applying the chat "
        "template! This can happen if the chat template deletes portions of the final message.");
  }
  const bool keeps_space = std::string_view(prompt).substr(mark).starts_with(kContinuation);
  prompt.resize(mark);
  if (!keeps_space) prompt = std::string(jinja::Strip(prompt, jinja::Side::kRight));
  return prompt;
}

Result<std::string> RenderMessages(const ChatTemplate& chat_template,
                                   const json::Value& special_tokens, const json::Value& messages,
                                   const ChatPromptOptions& options, ReadCalls& read) {
  const json::Value& kwargs = options.chat_template_kwargs;
  ASSIGN_OR_RETURN(
      json::Value normal,
      NormalizeAll(messages, options.content_format.value_or(chat_template.content_format()),
                   options.image_text, read));
  if (chat_template.reads_thinking()) NameThinking(normal);
  std::string last_text;
  if (options.continue_final_message) {
    ASSIGN_OR_RETURN(last_text, MarkLast(normal));
  }
  json::Value variables{json::Value::Object{}};
  if (special_tokens.is_object()) variables = special_tokens;
  if (kwargs.is_object()) {
    const std::vector<std::string>& known = chat_template.variables();
    for (const auto& [name, value] : kwargs.as_object()) {
      const bool is_own =
          std::find(std::begin(kOwnNames), std::end(kOwnNames), name) != std::end(kOwnNames) ||
          special_tokens.Find(name) != nullptr;
      if (!is_own && std::binary_search(known.begin(), known.end(), name))
        variables.Set(name, value);
    }
  }
  variables.Set("messages", std::move(normal));
  variables.Set("tools", options.tools);
  variables.Set("documents", options.documents);
  variables.Set("add_generation_prompt", options.add_generation_prompt);
  ASSIGN_OR_RETURN(std::string prompt, chat_template.Render(variables, options.render));
  if (options.continue_final_message) return CutAtMark(std::move(prompt), last_text);
  return prompt;
}

}  // namespace

json::Value SpecialTokens(const json::Value& tokenizer_config,
                          const json::Value& special_tokens_map) {
  json::Value result{json::Value::Object{}};
  const auto add = [&](const std::string& name, const json::Value& value) {
    const std::string text = SpecialText(value);
    if (!text.empty() && result.Find(name) == nullptr) result.Set(name, text);
  };
  for (const json::Value* source : {&tokenizer_config, &special_tokens_map}) {
    if (!source->is_object()) continue;
    for (const auto& [name, value] : source->as_object()) {
      // Takes bos_token, image_token, ..., but not added_tokens_decoder and add_bos_token, which
      // are not texts of tokens.
      if (name.ends_with("_token") && (value.is_string() || value.is_object())) add(name, value);
    }
    for (const char* group : {"extra_special_tokens", "model_specific_special_tokens"}) {
      const json::Value* extra = source->Find(group);
      if (extra == nullptr || !extra->is_object()) continue;
      for (const auto& [name, value] : extra->as_object()) add(name, value);
    }
  }
  return result;
}

Status CheckTemplateKwargs(const json::Value& kwargs) {
  if (Depth(kwargs) <= kMaxKwargsDepth && json::Write(kwargs).size() <= kMaxKwargsBytes) return {};
  return Bad("chat_template_kwargs", "larger than " + std::to_string(kMaxKwargsBytes) +
                                         " bytes or nested deeper than " +
                                         std::to_string(kMaxKwargsDepth) + " levels");
}

Result<json::Value> NormalizeMessages(const json::Value& messages, ContentFormat format,
                                      const std::string& image_text) {
  ReadCalls read;
  return NormalizeAll(messages, format, image_text, read);
}

Result<std::string> RenderChatPrompt(const ChatTemplate& chat_template,
                                     const json::Value& special_tokens, const json::Value& messages,
                                     const ChatPromptOptions& options) {
  if (options.continue_final_message && options.add_generation_prompt) {
    return Fail(ErrorCode::kInvalidArgument,
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
                "add_generation_prompt");
  }
  const json::Value& kwargs = options.chat_template_kwargs;
  if (!kwargs.is_null() && !kwargs.is_object()) {
    return Bad("chat_template_kwargs",
               std::string("must be an object, not ") + json::TypeName(kwargs.type()));
  }
  RETURN_IF_ERROR(CheckTemplateKwargs(kwargs));
  ReadCalls read;
  Result<std::string> prompt =
      RenderMessages(chat_template, special_tokens, messages, options, read);
  if (prompt || prompt.error().code == ErrorCode::kCancelled) return prompt;
  // A template that reads parts may accept only strings as the content of some roles.
  if (options.content_format.value_or(chat_template.content_format()) == ContentFormat::kParts) {
    ReadCalls with_strings{.keeps_strings = true};
    Result<std::string> again =
        RenderMessages(chat_template, special_tokens, messages, options, with_strings);
    if (again) return again;
  }
  if (!read.has_calls) return prompt;
  // Tries other forms of the arguments, because some templates accept only one form. Arguments that
  // the model wrote must not make the conversation fail.
  for (const ArgumentForm form : {ArgumentForm::kObjects, ArgumentForm::kTexts}) {
    if (form == ArgumentForm::kObjects && !read.has_no_json) continue;
    ReadCalls other{.form = form};
    Result<std::string> again =
        RenderMessages(chat_template, special_tokens, messages, options, other);
    if (again) return again;
  }
  return prompt;
}

}  // namespace sluice
