// Receipts of answers (docs/receipts.md).
#pragma once

#include <memory>

#include "receipt/receipt_issuer.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/answer/generation.h"

namespace sluice {

// What a receipt says before the answer is known.
struct ReceiptDraft {
  std::shared_ptr<const ModelContext> model;  // whose receipts are not null
  Receipt receipt;
};

// Gives a seed to prompts without one, so that the answer can be computed again.
ReceiptDraft DraftReceipt(const ModelContext& model, const AnswerOptions& options,
                          GenerationRequest& generation, bool is_beam_search, bool is_constrained);

// Wraps `writer`: collects the tokens of the choices, and adds the signed receipt to the UsageEvent
// of an answer that is complete. An answer that failed has none.
std::unique_ptr<AnswerWriter> WithReceipt(std::unique_ptr<AnswerWriter> writer, ReceiptDraft draft);

}  // namespace sluice
