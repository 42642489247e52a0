#include "server/api/answer/answer_receipt.h"

#include <openssl/rand.h>

#include <utility>
#include <variant>

#include "base/check.h"

namespace sluice {
namespace {

// Returns a positive seed, because some clients accept only positive ones.
int64_t RandomReceiptSeed() {
  uint64_t bytes = 0;
  CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(&bytes), sizeof bytes), 1);
  return static_cast<int64_t>(bytes >> 2);
}

class ReceiptWriter : public AnswerWriter {
 public:
  ReceiptWriter(std::unique_ptr<AnswerWriter> writer, ReceiptDraft draft)
      : writer_(std::move(writer)),
        draft_(std::move(draft)),
        tokens_(draft_.receipt.choices.size()) {}

  void Write(AnswerStep step) override {
    for (AnswerEvent& event : step) {
      if (const auto* tokens = std::get_if<TokensEvent>(&event)) {
        std::vector<int32_t>& ids = tokens_[static_cast<size_t>(tokens->choice)];
        ids.insert(ids.end(), tokens->ids.begin(), tokens->ids.end());
      } else if (const auto* finish = std::get_if<FinishEvent>(&event)) {
        ReceiptChoice& choice = draft_.receipt.choices[static_cast<size_t>(finish->choice)];
        choice.finish_reason = FinishReasonName(*finish);
        if (!finish->weights.empty() && finish->weights.back().weights > 0) are_replaced_ = true;
      } else if (auto* usage = std::get_if<UsageEvent>(&event)) {
        usage->receipt = Sign();
      }
    }
    writer_->Write(std::move(step));
  }
  std::optional<ApiError> Refusal() const override { return writer_->Refusal(); }

 private:
  std::shared_ptr<const std::string> Sign() {
    const ReceiptIssuer& issuer = *draft_.model->receipts;
    Receipt& receipt = draft_.receipt;
    // The digest covers only the weights with which the server started.
    if (are_replaced_) receipt.also.emplace_back("replaced weights");
    for (size_t i = 0; i < tokens_.size(); ++i) {
      receipt.choices[i].num_tokens = std::ssize(tokens_[i]);
      receipt.choices[i].sha256 = TokensSha256(tokens_[i]);
      if (issuer.with_tokens) receipt.choices[i].token_ids = std::move(tokens_[i]);
    }
    return std::make_shared<const std::string>(json::Write(SignedReceipt(receipt, issuer.key)));
  }

  const std::unique_ptr<AnswerWriter> writer_;
  ReceiptDraft draft_;
  std::vector<std::vector<int32_t>> tokens_;  // indexed by choice
  bool are_replaced_ = false;
};

}  // namespace

ReceiptDraft DraftReceipt(const ModelContext& model, const AnswerOptions& options,
                          GenerationRequest& generation, bool is_beam_search, bool is_constrained) {
  const ReceiptIssuer& issuer = *model.receipts;
  ReceiptDraft draft{options.model, {}};
  Receipt& receipt = draft.receipt;
  receipt.id = options.id;
  receipt.model = options.model_name();
  receipt.created = options.created;
  receipt.program = issuer.program;
  receipt.weights = issuer.weights;
  receipt.profile = issuer.profile;
  receipt.end_tokens = model.end_tokens;
  receipt.num_sequences = options.n;
  if (is_constrained) receipt.also.emplace_back("constraint");
  if (is_beam_search) receipt.also.emplace_back("beam search");
  if (generation.adapter != nullptr) receipt.also.emplace_back("adapter");
  bool has_images = false, has_rows = false;
  for (size_t i = 0; i < generation.prompts.size(); ++i) {
    const Prompt& prompt = generation.prompts[i];
    SamplingParams& sampling = generation.sampling[i];
    if (!sampling.seed) sampling.seed = RandomReceiptSeed();
    has_images = has_images || !prompt.images.empty();
    has_rows = has_rows || prompt.rows != nullptr;
    receipt.prompts.push_back({.num_tokens = std::ssize(prompt.tokens),
                               .sha256 = TokensSha256(prompt.tokens),
                               .token_ids = {},
                               .sampling = sampling});
    if (issuer.with_tokens) receipt.prompts.back().token_ids = prompt.tokens;
    for (int sequence = 0; sequence < options.n; ++sequence) {
      receipt.choices.push_back({.prompt = static_cast<int32_t>(i),
                                 .sequence = sequence,
                                 .finish_reason = "",
                                 .num_tokens = 0,
                                 .sha256 = "",
                                 .token_ids = {}});
    }
  }
  if (has_images) receipt.also.emplace_back("images");
  if (has_rows) receipt.also.emplace_back("embeddings");
  return draft;
}

std::unique_ptr<AnswerWriter> WithReceipt(std::unique_ptr<AnswerWriter> writer,
                                          ReceiptDraft draft) {
  return std::make_unique<ReceiptWriter>(std::move(writer), std::move(draft));
}

}  // namespace sluice
