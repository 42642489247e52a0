#include "server/api/answer/answer_notes.h"

#include <string_view>
#include <utility>
#include <variant>

namespace sluice {
namespace {

// Maximum number of choices whose finish reasons are noted.
constexpr size_t kMaxReasons = 64;

class NotingWriter : public AnswerWriter {
 public:
  NotingWriter(std::unique_ptr<AnswerWriter> writer, std::shared_ptr<ResponseWriter> client,
               std::string id, int64_t prompt_tokens)
      : writer_(std::move(writer)), client_(std::move(client)) {
    AnswerNotes notes;
    notes.request_id = std::move(id);
    notes.prompt_tokens = prompt_tokens;
    client_->Describe(std::move(notes));
  }

  void Write(AnswerStep step) override {
    client_->CorrectNotes([&](AnswerNotes& notes) {
      for (const AnswerEvent& event : step) Note(event, notes);
    });
    writer_->Write(std::move(step));
  }
  std::optional<ApiError> Refusal() const override { return writer_->Refusal(); }

 private:
  void Note(const AnswerEvent& event, AnswerNotes& notes) {
    // The reason to report if the client disconnects.
    constexpr std::string_view kUnlessMoreComes = "abort";
    if (const auto* prompt = std::get_if<PromptEvent>(&event)) {
      notes.cached_tokens = prompt->result.cached_tokens;
      notes.finish_reason = kUnlessMoreComes;
    } else if (const auto* tokens = std::get_if<TokensEvent>(&event)) {
      notes.completion_tokens += static_cast<int64_t>(tokens->ids.size());
      notes.finish_reason = kUnlessMoreComes;
    } else if (const auto* finish = std::get_if<FinishEvent>(&event)) {
      AddReason(FinishReasonName(*finish));
    } else if (const auto* usage = std::get_if<UsageEvent>(&event)) {
      notes.prompt_tokens = usage->prompt_tokens;
      notes.completion_tokens = usage->completion_tokens;
      notes.cached_tokens = usage->cached_tokens;
      notes.finish_reason = reasons_;
    } else if (std::holds_alternative<ErrorEvent>(event)) {
      AddReason("error");
      notes.finish_reason = reasons_;
    }
  }
  void AddReason(std::string_view reason) {
    if (num_reasons_++ >= kMaxReasons) return;
    if (!reasons_.empty()) reasons_ += ',';
    reasons_ += reason;
  }

  const std::unique_ptr<AnswerWriter> writer_;
  const std::shared_ptr<ResponseWriter> client_;
  std::string reasons_;
  size_t num_reasons_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> WithNotes(std::unique_ptr<AnswerWriter> writer,
                                        std::shared_ptr<ResponseWriter> client, std::string id,
                                        int64_t prompt_tokens) {
  return std::make_unique<NotingWriter>(std::move(writer), std::move(client), std::move(id),
                                        prompt_tokens);
}

}  // namespace sluice
