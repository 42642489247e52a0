#include "server/api/openai_answer.h"

#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace sluice {

OpenAiAnswer::OpenAiAnswer(AnswerOptions&& options, std::string_view object, size_t num_choices,
                           std::shared_ptr<ResponseWriter> writer)
    : options_(std::move(options)),
      writer_(std::move(writer)),
      tells_times_(options_.identity.tell_times && num_choices == 1),
      clock_(options_.identity.clock) {
  const AnswerIdentity& identity = options_.identity;
  head_ = R"({"id":)";
  json::AppendString(head_, identity.id);
  head_ += fmt::format(R"(,"object":"{}","created":{},"model":)", object, identity.created);
  json::AppendString(head_, identity.model);
  head_ += R"(,"choices":[)";
}

void OpenAiAnswer::OnSilence() {
  if (!options_.stream) return;
  StartStream();
  writer_->WriteChunk(kSilenceEvent);
}

void OpenAiAnswer::OnFailure(const ApiError& error) {
  if (!streaming_) return writer_->Send(ErrorResponse(error, options_.identity.dialect));
  writer_->WriteChunk(ErrorEvent(error));
  writer_->EndStream();
}

bool OpenAiAnswer::is_too_large() const {
  return !options_.stream && kept_bytes_ > options_.model->config.max_answer_bytes;
}

void OpenAiAnswer::Count(int prompt, const PromptResult& result) {
  if (prompt < last_prompt_) return;
  last_prompt_ = prompt;
  cached_tokens_ = result.cached_tokens;
  clock_.OnQueued(result.queue_seconds);
}

void OpenAiAnswer::Count(const ChoiceDelta& delta) {
  completion_tokens_ += static_cast<int64_t>(delta.tokens.size());
  clock_.OnTokens(static_cast<int64_t>(delta.tokens.size()));
}

void OpenAiAnswer::StartStream() {
  if (streaming_) return;
  streaming_ = true;
  HttpResponse response;
  response.content_type = "text/event-stream; charset=utf-8";
  writer_->StartStream(std::move(response));
}

void OpenAiAnswer::WriteEvent(std::string event) {
  event.push_back('}');
  event += kEventEnd;
  writer_->WriteChunk(event);
}

void OpenAiAnswer::EndStream(std::string_view created_cache) {
  if (options_.include_usage) {
    std::string event = "data: " + head_ + R"(],"usage":)";
    AppendUsage(event, prompt_tokens_, completion_tokens_);
    if (options_.model->config.enable_prompt_tokens_details) {
      event += fmt::format(R"(,"prompt_tokens_details":{{"cached_tokens":{}{}}})", cached_tokens_,
                           created_cache);
    }
    event.push_back('}');
    if (!IsTrtllm()) AppendFingerprint(event);
    if (tells_times_) {
      event += R"(,"metrics":)";
      clock_.AppendTo(event, /*whole=*/false);
    }
    WriteEvent(std::move(event));
  }
  writer_->WriteChunk(kDoneEvent);
  writer_->EndStream();
}

void OpenAiAnswer::AppendWholeUsage(std::string& body, std::string_view created_cache) const {
  body += R"(],"service_tier":null)";
  AppendFingerprint(body);
  body += R"(,"usage":)";
  AppendUsage(body, prompt_tokens_, completion_tokens_);
  body += R"(,"prompt_tokens_details":)";
  if (options_.model->config.enable_prompt_tokens_details) {
    body += fmt::format(R"({{"cached_tokens":{}{},"multimodal_tokens":null}})", cached_tokens_,
                        created_cache);
  } else {
    body += "null";
  }
  body += R"(,"completion_tokens_details":null})";
}

void OpenAiAnswer::SendWhole(std::string body) {
  body += R"(,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":)";
  if (tells_times_) {
    clock_.AppendTo(body, /*whole=*/true);
  } else {
    body += "null";
  }
  body.push_back('}');
  Send(std::move(body));
}

void OpenAiAnswer::Send(std::string body) {
  HttpResponse response = JsonResponse(std::move(body));
  if (options_.identity.decorate) options_.identity.decorate(response);
  writer_->Send(std::move(response));
}

void OpenAiAnswer::AppendFingerprint(std::string& out) const {
  const std::string& fingerprint = options_.identity.fingerprint;
  if (fingerprint.empty() && options_.stream) return;
  out += R"(,"system_fingerprint":)";
  if (fingerprint.empty()) {
    out += "null";
  } else {
    json::AppendString(out, fingerprint);
  }
}

}  // namespace sluice
