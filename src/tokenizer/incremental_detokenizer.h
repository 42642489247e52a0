// Incremental detokenization: the text of one stream of tokens, as it becomes complete.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace sluice {

// Emits text as Hugging Face's DecodeStream does, which vLLM uses: never half a character, and
// never text that still ends in U+FFFD, since the next token may complete it.
//
// Thread safety: one thread at a time. Ownership: the tokenizer must outlive it.
// Memory is bounded and time linear in the text, also for a model that produces invalid bytes
// without end: after kMaxPendingTokens tokens without complete text, the pending text is emitted
// with U+FFFD in the place of invalid bytes.
class IncrementalDetokenizer {
 public:
  static constexpr size_t kMaxPendingTokens = 256;

  // `prompt_tail`: the last tokens of the prompt, for decoders whose text of a token depends on
  // what stands before (the space in front of a word in SentencePiece vocabularies); see
  // PromptTail. Their text is not emitted, unless it ends within a character: then the character
  // comes with the first complete text, as in DecodeStream.
  IncrementalDetokenizer(const Tokenizer& tokenizer, bool skip_special_tokens,
                         std::span<const int32_t> prompt_tail = {});

  // The text that `id` completes; often "".
  std::string Push(int32_t id);
  // Ends the stream and returns the text not yet emitted. Bytes of an unfinished character are
  // dropped, as vLLM does.
  std::string Finish();

  // The shortest tail of `prompt`, of at least 4 tokens where it has them, that decodes without
  // U+FFFD, all of it if none of less than 24 does (vLLM's rule): what to give to the constructor.
  static std::span<const int32_t> PromptTail(const Tokenizer& tokenizer,
                                             std::span<const int32_t> prompt);

 private:
  std::string PushBytes(int32_t id);
  std::string PushWindow(int32_t id);
  void Append(int32_t id);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  // A ByteLevel decoder joins bytes, so that the bytes not yet emitted are all the state.
  std::string pending_bytes_;
  size_t num_pending_ = 0;  // Tokens in pending_bytes_.
  // Any other decoder: the tokens whose text may still influence what follows, the text of the
  // first `prefix_tokens_` of them (emitted already).
  std::vector<int32_t> window_;
  std::string prefix_;
  size_t prefix_tokens_ = 0;
};

}  // namespace sluice
