// Incremental detokenization: emits the text of a token stream piece by piece.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace sluice {

// Emits text like Hugging Face's DecodeStream, which vLLM uses: never a part of a character, and
// never text that ends in U+FFFD, because the next token may complete it.
//
// Thread safety: one thread at a time. Ownership: the tokenizer must outlive this object. Memory is
// bounded and time is linear in the text, even if a model produces invalid bytes forever: after
// kMaxPendingTokens tokens without complete text, the pending text is emitted with U+FFFD for
// invalid bytes.
class IncrementalDetokenizer {
 public:
  static constexpr size_t kMaxPendingTokens = 256;

  // `prompt_tail`: the last tokens of the prompt (see PromptTail). With some decoders, a token's
  // text depends on earlier tokens; an example is the space before a word in SentencePiece
  // vocabularies. The text of `prompt_tail` is not emitted. If the tail ends inside a character,
  // that character is part of the first emitted text, as in DecodeStream.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         std::span<const int32_t> prompt_tail = {});

  // Returns the text that `id` completes; often "".
  std::string Push(int32_t id);
  // Ends the stream and returns the remaining text. Bytes of an incomplete character are dropped,
  // as in vLLM.
  std::string Finish();

  // Returns the argument for the constructor: the shortest tail of `prompt` that decodes without
  // U+FFFD and has at least 4 tokens (if the prompt has as many). Returns all of `prompt` if no
  // tail of fewer than 24 tokens qualifies. This is vLLM's rule.
  static std::span<const int32_t> PromptTail(const Tokenizer& tokenizer,
                                             std::span<const int32_t> prompt);

 private:
  std::string PushBytes(int32_t id);
  std::string PushWindow(int32_t id);
  void Append(int32_t id);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  // Used for ByteLevel decoders, which concatenate bytes: the bytes not emitted yet are the whole
  // state.
  std::string pending_bytes_;
  size_t num_pending_ = 0;  // Number of tokens in pending_bytes_.
  // Used with all other decoders: the tokens that may still affect later text. `prefix_` is the
  // text of the first `prefix_tokens_` of them, which has been emitted.
  std::vector<int32_t> window_;
  std::string prefix_;
  size_t prefix_tokens_ = 0;
};

}  // namespace sluice
