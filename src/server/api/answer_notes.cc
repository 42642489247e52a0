#include "server/api/answer_notes.h"

#include <utility>
#include <variant>

namespace sluice {
namespace {

// Of many choices the first ones' reasons are noted.
constexpr size_t kMaxReasons = 64;

class NotingWriter : public AnswerWriter {
 public:
  NotingWriter(std::unique_ptr<AnswerWriter> writer, std::shared_ptr<ResponseWriter> client,
               std::string id, int64_t prompt_tokens)
      : writer_(std::move(writer)), client_(std::move(client)) {
    notes_.request_id = std::move(id);
    notes_.prompt_tokens = prompt_tokens;
    client_->Describe(notes_);
  }

  void Write(AnswerStep step) override {
    bool changed = false;
    for (const AnswerEvent& event : step) changed |= Note(event);
    if (changed) client_->Describe(notes_);
    writer_->Write(std::move(step));
  }
  std::optional<ApiError> Refusal() const override { return writer_->Refusal(); }

 private:
  // Whether the notes are others now.
  bool Note(const AnswerEvent& event) {
    if (const auto* prompt = std::get_if<PromptEvent>(&event)) {
      notes_.cached_tokens = prompt->result.cached_tokens;
    } else if (const auto* tokens = std::get_if<TokensEvent>(&event)) {
      notes_.completion_tokens += static_cast<int64_t>(tokens->ids.size());
    } else if (const auto* finish = std::get_if<FinishEvent>(&event)) {
      AddReason(FinishReasonName(*finish));
      return false;
    } else if (const auto* usage = std::get_if<UsageEvent>(&event)) {
      notes_.prompt_tokens = usage->prompt_tokens;
      notes_.completion_tokens = usage->completion_tokens;
      notes_.cached_tokens = usage->cached_tokens;
      notes_.finish_reason = reasons_;
      return true;
    } else if (std::holds_alternative<ErrorEvent>(event)) {
      AddReason("error");
      notes_.finish_reason = reasons_;
      return true;
    } else {
      return false;
    }
    notes_.finish_reason = "abort";  // unless more comes, the client has left
    return true;
  }
  void AddReason(std::string_view reason) {
    if (num_reasons_++ >= kMaxReasons) return;
    if (!reasons_.empty()) reasons_ += ',';
    reasons_ += reason;
  }

  const std::unique_ptr<AnswerWriter> writer_;
  const std::shared_ptr<ResponseWriter> client_;
  AnswerNotes notes_;
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
