// Fuzz target: arbitrary bytes as a request and as an answer to it, streamed and not.
#include "base/fuzz_input.h"
#include "shadow/answer.h"
#include "shadow/asked.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text = fuzz::Text(data, size);
  for (const bool is_stream : {false, true}) {
    const auto answer = shadow::ReadAnswer(text, is_stream);
    fuzz::Require(answer.has_value() || !answer.error().message.empty());
    if (!answer) continue;
    fuzz::Require(!answer->choices.empty());
    size_t num_tokens = 0;
    for (const shadow::AnswerChoice& choice : answer->choices) num_tokens += choice.tokens.size();
    fuzz::Require(num_tokens <= size);
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    const auto asked = shadow::ReadAsked(path, text, {});
    if (asked) fuzz::Require(!asked->prompts.empty() || asked->body.Find("prompt") != nullptr);
  }
  return 0;
}
