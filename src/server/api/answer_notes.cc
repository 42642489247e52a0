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
    for (const AnswerEvent& event : step) {
      if (const auto* finish = std::get_if<FinishEvent>(&event)) {
        AddReason(FinishReasonName(*finish));
      } else if (const auto* usage = std::get_if<UsageEvent>(&event)) {
        notes_.prompt_tokens = usage->prompt_tokens;
        notes_.completion_tokens = usage->completion_tokens;
        notes_.cached_tokens = usage->cached_tokens;
        client_->Describe(notes_);
      } else if (std::holds_alternative<ErrorEvent>(event)) {
        AddReason("error");
        client_->Describe(notes_);
      }
    }
    writer_->Write(std::move(step));
  }
  std::optional<ApiError> Refusal() const override { return writer_->Refusal(); }

 private:
  void AddReason(std::string_view reason) {
    if (num_reasons_++ >= kMaxReasons) return;
    if (!notes_.finish_reason.empty()) notes_.finish_reason += ',';
    notes_.finish_reason += reason;
  }

  const std::unique_ptr<AnswerWriter> writer_;
  const std::shared_ptr<ResponseWriter> client_;
  AnswerNotes notes_;
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
