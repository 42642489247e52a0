#include "shadow/upstream_view.h"

#include <charconv>
#include <utility>

namespace sluice::shadow {
namespace {

constexpr int kAskedLogprobs = 5;

std::map<std::string, std::string> KeyHeader(const std::string& api_key) {
  if (api_key.empty()) return {};
  return {{"Authorization", "Bearer " + api_key}};
}

std::optional<std::vector<int32_t>> IdsIn(const json::Value& answer) {
  const json::Value* list = answer.Find("tokens");
  if (list == nullptr || !list->is_array() || list->as_array().empty()) return std::nullopt;
  std::vector<int32_t> ids;
  for (const json::Value& id : list->as_array()) {
    if (!id.is_integer()) return std::nullopt;
    ids.push_back(static_cast<int32_t>(id.as_integer()));
  }
  return ids;
}

json::Value ListOf(std::span<const int32_t> ids) {
  json::Value::Array list;
  for (const int32_t id : ids) list.emplace_back(static_cast<int64_t>(id));
  return list;
}

void CopyMember(const json::Value& from, std::string_view name, json::Value& to) {
  const json::Value* value = from.Find(name);
  if (value != nullptr && !value->is_null()) to.Set(name, *value);
}

// Returns the id of a token that is given as "token_id:5" or as its text.
std::optional<int32_t> TokenNamed(std::string_view name, const TokenLogprobs& candidates,
                                  const Tokenizer& tokenizer) {
  constexpr std::string_view kPrefix = "token_id:";
  if (name.starts_with(kPrefix)) {
    int32_t id = 0;
    const char* const end = name.data() + name.size();
    const auto [last, error] = std::from_chars(name.data() + kPrefix.size(), end, id);
    if (error == std::errc() && last == end) return id;
  }
  std::optional<int32_t> found;
  for (const auto& [id, logprob] : candidates.top) {
    const int32_t one[] = {id};
    if (tokenizer.Decode(one, /*skip_special_tokens=*/false) != name) continue;
    if (found) return std::nullopt;  // two tokens have this text
    found = id;
  }
  return found;
}

}  // namespace

UpstreamView::UpstreamView(const Url& url, const std::string& api_key,
                           std::shared_ptr<const ClientTls> tls)
    : http_(url, KeyHeader(api_key), std::move(tls)) {}

UpstreamView::Kind UpstreamView::kind() const {
  {
    const MutexLock lock(mutex_);
    if (kind_ != Kind::kUnknown) return kind_;
  }
  const auto answer = http_.Get("/props");
  if (!answer) return Kind::kUnknown;
  const auto body = json::Parse(answer->body);
  const bool is_llama =
      answer->status == 200 && body && body->Find("default_generation_settings") != nullptr;
  const MutexLock lock(mutex_);
  kind_ = is_llama ? Kind::kLlamaCpp : Kind::kVllm;
  return kind_;
}

std::optional<json::Value> UpstreamView::Ask(std::string_view path, const json::Value& body) const {
  const auto answer = http_.Post(path, json::Write(body));
  if (!answer || answer->status != 200) return std::nullopt;
  auto value = json::Parse(answer->body);
  if (!value || !value->is_object()) return std::nullopt;
  return *std::move(value);
}

std::optional<UpstreamPrompt> UpstreamView::Prompt(const Asked& asked,
                                                   const json::Value& prompt) const {
  json::Value body{json::Value::Object{}};
  UpstreamPrompt made;
  const Kind kind = this->kind();
  if (kind == Kind::kUnknown) return std::nullopt;
  if (kind == Kind::kLlamaCpp) {
    if (asked.is_chat) {
      const auto rendered = Ask("/apply-template", asked.body);
      const json::Value* text = rendered ? rendered->Find("prompt") : nullptr;
      if (text == nullptr || !text->is_string()) return std::nullopt;
      made.text = text->as_string();
    } else {
      if (!prompt.is_string()) return std::nullopt;
      made.text = prompt.as_string();
    }
    body.Set("content", made.text);
    body.Set("add_special", true);
    body.Set("parse_special", true);
  } else if (asked.is_chat) {
    for (const char* name : {"model", "messages", "tools", "chat_template", "chat_template_kwargs"})
      CopyMember(asked.body, name, body);
    body.Set("add_generation_prompt", true);
  } else {
    if (!prompt.is_string()) return std::nullopt;
    CopyMember(asked.body, "model", body);
    body.Set("prompt", prompt);
  }
  const auto answer = Ask("/tokenize", body);
  if (!answer) return std::nullopt;
  auto ids = IdsIn(*answer);
  if (!ids) return std::nullopt;
  made.ids = *std::move(ids);
  return made;
}

std::optional<std::string> UpstreamView::Detokenize(std::span<const int32_t> ids) const {
  json::Value body{json::Value::Object{}};
  body.Set("tokens", ListOf(ids));
  const auto answer = Ask("/detokenize", body);
  if (!answer) return std::nullopt;
  for (const char* name : {"prompt", "content"}) {
    const json::Value* text = answer->Find(name);
    if (text != nullptr && text->is_string()) return text->as_string();
  }
  return std::nullopt;
}

std::optional<UpstreamLogprobs> UpstreamView::Logprobs(const Asked& asked,
                                                       std::span<const int32_t> ids,
                                                       const TokenLogprobs& candidates,
                                                       const Tokenizer& tokenizer) const {
  json::Value body{json::Value::Object{}};
  CopyMember(asked.body, "model", body);
  body.Set("prompt", ListOf(ids));
  body.Set("max_tokens", 1);
  body.Set("temperature", 0);
  body.Set("logprobs", kAskedLogprobs);
  const auto answer = Ask("/v1/completions", body);
  const json::Value* choices = answer ? answer->Find("choices") : nullptr;
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty())
    return std::nullopt;
  const json::Value* logprobs = choices->as_array()[0].Find("logprobs");
  if (logprobs == nullptr || !logprobs->is_object()) return std::nullopt;
  UpstreamLogprobs found;
  const auto add = [&](std::optional<int32_t> token, const json::Value* logprob) {
    if (token && logprob != nullptr && logprob->is_number())
      found.emplace_back(*token, logprob->as_double());
  };
  const json::Value* content = logprobs->Find("content");
  const json::Value* tops = logprobs->Find("top_logprobs");
  if (content != nullptr && content->is_array() && !content->as_array().empty()) {
    const json::Value* list = content->as_array()[0].Find("top_logprobs");
    if (list == nullptr || !list->is_array()) return std::nullopt;
    for (const json::Value& entry : list->as_array()) {
      const json::Value* id = entry.Find("id");
      const json::Value* text = entry.Find("token");
      if (id != nullptr && id->is_integer()) {
        add(static_cast<int32_t>(id->as_integer()), entry.Find("logprob"));
      } else if (text != nullptr && text->is_string()) {
        add(TokenNamed(text->as_string(), candidates, tokenizer), entry.Find("logprob"));
      }
    }
  } else if (tops != nullptr && tops->is_array() && !tops->as_array().empty() &&
             tops->as_array()[0].is_object()) {
    for (const auto& [name, logprob] : tops->as_array()[0].as_object())
      add(TokenNamed(name, candidates, tokenizer), &logprob);
  }
  if (found.empty()) return std::nullopt;
  return found;
}

}  // namespace sluice::shadow
