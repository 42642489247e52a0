#include "server/api/openai/openai_writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api/common/answer_json.h"
#include "server/api/common/api_error.h"
#include "server/api/common/python_text.h"

namespace sluice {
namespace {

constexpr std::string_view kEventEnd = "\n\n";
constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

template <typename T>
void DropFirst(std::vector<T>& list, size_t count) {
  list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

OpenAiWriter::OpenAiWriter(Format format, AnswerOptions options,
                           std::shared_ptr<ResponseWriter> client)
    : options_(std::move(options)),
      choices_(options_.prompts.size() * static_cast<size_t>(options_.n)),
      format_(format),
      client_(std::move(client)),
      prompt_results_(options_.prompts.size()) {
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].index = static_cast<int>(i);
    choices_[i].prompt = static_cast<int>(i) / options_.n;
    choices_[i].pending = PendingTokens(*options_.model->tokenizer, PromptOf(choices_[i]).tail);
  }
  for (const auto& prompt : options_.prompts) prompt_tokens_ += prompt.num_tokens;
  head_ = format_.object.empty() ? R"({"request_id":)" : R"({"id":)";
  json::AppendString(head_, options_.id);
  if (!format_.object.empty()) head_ += fmt::format(R"(,"object":"{}")", format_.object);
  head_ += fmt::format(R"(,"created":{},"model":)", options_.created);
  json::AppendString(head_, options_.model_name());
  head_ += R"(,"choices":[)";
}

void OpenAiWriter::Write(AnswerStep step) {
  changed_ = nullptr;
  for (AnswerEvent& event : step)
    std::visit([this](auto& known) { Take(std::move(known)); }, event);
  if (changed_ == nullptr || !options_.stream) return;
  Choice& choice = *changed_;
  // A step without new text or calls is sent together with the next one.
  if (options_.parsed && !choice.finish && choice.text.empty() && choice.reasoning.empty() &&
      choice.calls.empty())
    return;
  std::string chunk;
  AppendChunk(chunk, choice);
  SendChunk(chunk);
  choice.is_first = false;
  choice.text.clear();
  choice.reasoning.clear();
  choice.calls.clear();
  choice.tokens.clear();
}

bool OpenAiWriter::tells_times() const {
  return options_.model->config.enable_per_request_metrics && choices_.size() == 1;
}

void OpenAiWriter::StartStream() {
  if (streaming_) return;
  client_->StartStream(EventStreamHead());
  streaming_ = true;  // set only at the first chunk, because an error before it is sent as a
                      // separate response
}

void OpenAiWriter::SendChunk(std::string_view content) {
  client_->WriteChunk(fmt::format("data: {}{}}}{}", head_, content, kEventEnd));
}

void OpenAiWriter::SendEchoes() {
  for (const Choice& choice : choices_) {
    if (PromptOf(choice).echo.empty()) continue;
    std::string out = fmt::format(R"({{"index":{},"delta":{{"content":)", choice.index);
    json::AppendString(out, PromptOf(choice).echo);
    out += R"(},"logprobs":null,"finish_reason":null}])";
    AppendChunkUsage(out, 0);
    SendChunk(out);
  }
  echo_sent_ = true;
}

// Returns the choice that a step changes. A new one begins with the echo of its prompt.
OpenAiWriter::Choice& OpenAiWriter::ChoiceAt(int index) {
  if (options_.stream) {
    StartStream();
    if (!std::exchange(opened_, true)) SendOpening();
  }
  Choice& choice = choices_[static_cast<size_t>(index)];
  changed_ = &choice;
  if (std::exchange(choice.begun, true)) return choice;
  const AnswerOptions::Prompt& prompt = PromptOf(choice);
  if (!echo_sent_) choice.text = prompt.echo;
  Keep(choice.text.size());
  if (format_.repeats_prompt) {
    if (options_.return_token_ids) Keep(kTokenIdBytes * prompt.tokens.size());
    Keep(PromptLogprobBytes(prompt_results_[static_cast<size_t>(choice.prompt)]));
  }
  return choice;
}

void OpenAiWriter::Take(PromptEvent event) {
  Keep(PromptLogprobBytes(event.result));
  prompt_results_[static_cast<size_t>(event.prompt)] = std::move(event.result);
}

void OpenAiWriter::Take(TokensEvent event) {
  Choice& choice = ChoiceAt(event.choice);
  choice.num_tokens += static_cast<int64_t>(event.ids.size());
  Keep(kTokenIdBytes * event.ids.size());
  choice.tokens.insert(choice.tokens.end(), event.ids.begin(), event.ids.end());
  if (options_.hide_logprobs) return;
  for (const TokenLogprobs& logprobs : event.logprobs)
    Keep(format_.bytes_per_logprob * (1 + logprobs.top.size()));
  choice.logprobs.insert(choice.logprobs.end(), std::make_move_iterator(event.logprobs.begin()),
                         std::make_move_iterator(event.logprobs.end()));
  if (options_.hide_text) std::ranges::fill(event.offsets, 0);
  choice.offsets.insert(choice.offsets.end(), event.offsets.begin(), event.offsets.end());
}

void OpenAiWriter::Take(const TextEvent& event) {
  Choice& choice = ChoiceAt(event.choice);
  if (options_.hide_text) return;
  Keep(event.text.size());
  choice.text += event.text;
}

void OpenAiWriter::Take(const ReasoningEvent& event) {
  Choice& choice = ChoiceAt(event.choice);
  Keep(event.text.size());
  choice.reasoning += event.text;
}

void OpenAiWriter::Take(ToolCallEvent event) {
  Choice& choice = ChoiceAt(event.choice);
  Keep(event.id.size() + event.name.size() + event.arguments.size());
  const bool begins = !event.name.empty();
  if (!begins && !choice.calls.empty() && choice.calls.back().call == event.call) {
    choice.calls.back().arguments += event.arguments;
  } else {
    choice.calls.push_back(std::move(event));
  }
}

void OpenAiWriter::Take(FinishEvent event) {
  ChoiceAt(event.choice).finish = std::move(event);
}

void OpenAiWriter::Take(const KeepAliveEvent&) {
  if (!options_.stream) return;
  StartStream();
  client_->WriteChunk(kKeepAliveEvent);
}

void OpenAiWriter::Take(const UsageEvent& usage) {
  if (options_.stream) {
    if (options_.include_usage || usage.receipt != nullptr) {
      std::string chunk = "]";
      if (options_.include_usage) AppendUsageChunk(chunk, usage);
      AppendReceipt(chunk, usage);
      SendChunk(chunk);
    }
    client_->WriteChunk(kDoneEvent);
    return client_->EndStream();
  }
  std::string body = head_;
  for (Choice& choice : choices_) {
    if (choice.index > 0) body.push_back(',');
    AppendChoice(body, choice);
  }
  body.push_back(']');
  AppendEnd(body, usage);
  AppendReceipt(body, usage);
  body.push_back('}');
  HttpResponse response = JsonResponse(std::move(body));
  if (options_.add_headers) options_.add_headers(response);
  client_->Send(std::move(response));
}

void OpenAiWriter::Take(const ErrorEvent& event) {
  if (!streaming_) return client_->Send(ErrorResponse(event.error, options_.model->config.dialect));
  // Puts spaces in the JSON, as vLLM does for an error inside a stream.
  client_->WriteChunk(
      fmt::format("data: {}{}{}", ErrorBody(event.error, /*spaced=*/true), kEventEnd, kDoneEvent));
  client_->EndStream();
}

void OpenAiWriter::AppendColumns(std::string& out, Choice& choice) const {
  if (!options_.logprobs) {
    out += "null";
    return;
  }
  const Tokenizer& tokenizer = *options_.model->tokenizer;
  const AnswerOptions::Prompt& prompt = PromptOf(choice);
  LogprobColumns columns(LogprobStyle{tokenizer, *options_.logprobs, options_.tokens_as_ids});
  if (choice.is_first && options_.echo) {
    choice.pending = {};
    columns.AddPrompt(prompt.tokens, PromptOffsets(tokenizer, prompt.tokens, prompt.echo),
                      prompt_results_[static_cast<size_t>(choice.prompt)], choice.pending);
    choice.pending = PendingTokens(tokenizer, prompt.tail);
  }
  choice.num_shown += static_cast<int64_t>(CountCharacters(choice.text));
  const auto echoed = static_cast<int64_t>(CountCharacters(prompt.echo));
  // Text that may be the beginning of a stop string is withheld. A token that begins in withheld
  // text is also withheld, because its offset is not final: a stop string may still cut the text
  // before the token.
  size_t count = 0;
  for (; count < choice.logprobs.size(); ++count) {
    const int64_t offset = echoed + choice.offsets[count];
    if (!choice.finish && offset > choice.num_shown) break;
    columns.Add(choice.logprobs[count], std::min(offset, choice.num_shown), choice.pending);
  }
  columns.AppendTo(out);
  DropFirst(choice.logprobs, count);
  DropFirst(choice.offsets, count);
}

void OpenAiWriter::AppendList(std::string& out, Choice& choice) const {
  if (!options_.logprobs) {
    out += "null";
    return;
  }
  const int32_t count = *options_.logprobs + (options_.lists_logprobs ? 1 : 0);
  AppendLogprobList(out, LogprobStyle{*options_.model->tokenizer, count, options_.tokens_as_ids},
                    choice.logprobs, choice.pending);
  choice.logprobs.clear();
  choice.offsets.clear();
}

void OpenAiWriter::AppendPromptResult(std::string& out, int prompt) const {
  if (!options_.prompt_logprobs) {
    out += "null";
    return;
  }
  const auto index = static_cast<size_t>(prompt);
  AppendPromptLogprobs(out, *options_.model->tokenizer, options_.prompts[index].tokens,
                       prompt_results_[index], static_cast<size_t>(*options_.prompt_logprobs));
}

void OpenAiWriter::AppendStreamUsage(std::string& out, const UsageEvent& usage,
                                     std::string_view created_cache) const {
  out += R"(,"usage":)";
  AppendUsage(out, usage.prompt_tokens, usage.completion_tokens);
  AppendSimulated(out);
  if (options_.model->config.enable_prompt_tokens_details) {
    out += fmt::format(R"(,"prompt_tokens_details":{{"cached_tokens":{}{}}})", usage.cached_tokens,
                       created_cache);
  }
  if (usage.reasoning_tokens) AppendCompletionDetails(out, usage);
  out.push_back('}');
}

void OpenAiWriter::AppendSimulated(std::string& out) const {
  const std::string& devices = options_.model->config.simulated;
  if (devices.empty()) return;
  out += R"(,"simulated":)";
  json::AppendString(out, devices);
}

void OpenAiWriter::AppendStreamTimes(std::string& out, const UsageEvent& usage) const {
  if (!tells_times()) return;
  out += R"(,"metrics":)";
  usage.clock.AppendTo(out, /*whole=*/false);
}

}  // namespace sluice
