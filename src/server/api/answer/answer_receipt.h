// Makes the receipts of answers (docs/receipts.md).
#pragma once

#include <memory>

#include "receipt/receipt_issuer.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/answer/generation.h"

namespace sluice {

// The part of a receipt that is known before the answer.
struct ReceiptDraft {
  std::shared_ptr<const ModelContext> model;  // its `receipts` is not null
  Receipt receipt;
};

// Drafts the receipt. Prompts without a seed get one, so that the answer can be computed again.
ReceiptDraft DraftReceipt(const ModelContext& model, const AnswerOptions& options,
                          GenerationRequest& generation, bool is_beam_search, bool is_constrained);

// Wraps `writer`: collects the tokens of the choices, and adds the signed receipt to the UsageEvent
// of a complete answer. An answer that failed has no receipt.
std::unique_ptr<AnswerWriter> WithReceipt(std::unique_ptr<AnswerWriter> writer, ReceiptDraft draft);

}  // namespace sluice
