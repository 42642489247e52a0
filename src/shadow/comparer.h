// Compares an answer of the upstream server with the answer that this program's model would give.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/http_client.h"
#include "engine/engine.h"
#include "server/model_text.h"
#include "shadow/answer.h"
#include "shadow/asked.h"
#include "shadow/findings.h"
#include "shadow/scorer.h"
#include "shadow/upstream_view.h"
#include "tokenizer/tokenizer.h"

namespace sluice::shadow {

// One forwarded request and its answer. Contains no headers, and therefore no API keys.
struct Exchange {
  int64_t number = 0;
  std::string path;
  std::string request, response;  // bodies of the request and of its answer
  bool is_stream = false;
};

// The engines of this program, and the upstream server. All outlive the comparer.
struct ComparerParts {
  Engine* ours = nullptr;
  Engine* reference = nullptr;  // computes in float32; may be `ours`
  // The HTTP API of `ours`, for chat templates and for computing answers again.
  const HttpClient* server = nullptr;
  const Tokenizer* tokenizer = nullptr;
  SamplingDefaults defaults;
  const UpstreamView* upstream = nullptr;
  bool asks_upstream = true;  // whether `upstream` may be asked
  // Largest difference of log probabilities that counts as a tie, in nats.
  double epsilon = 0;
  Findings* findings = nullptr;
};

// Thread safety: Compare may be called from several threads at once.
class Comparer {
 public:
  explicit Comparer(ComparerParts parts);

  // Judges every choice of the answer and reports the verdicts. Blocks until the engines have
  // computed the scores.
  void Compare(const Exchange& exchange);

 private:
  // One choice of an answer, while it is judged.
  struct Case {
    const Exchange& exchange;
    const Asked& asked;
    const Answer& answer;
    const AnswerChoice& choice;
    size_t index = 0;
    std::vector<int32_t> prompt;  // token ids of the prompt, computed by this program
    // Token ids of the prompt at the upstream; empty if not known.
    std::vector<int32_t> upstream_prompt;
    std::vector<int32_t> tokens;  // token ids of the answer
    bool are_upstream_tokens = false;
    Finding finding;
  };

  Status CompareAnswer(const Exchange& exchange);
  // Returns the token ids of a prompt, computed with this program's tokenizer and chat template.
  Result<std::vector<int32_t>> OurPrompt(const Asked& asked, const json::Value& prompt) const;
  // Sets the verdict if the prompts differ.
  void JudgePrompt(Case& item, const json::Value& prompt);
  Status JudgeChoice(Case& item);
  Status JudgeTokens(Case& item);
  // Replaces a verdict of kReal or kSampling if the upstream's own log probabilities justify a
  // different one.
  void JudgeNumbers(Case& item, const Scores& reference, Judgement& judgement) const;
  // For a greedy request: whether the answer that this program computes has the same text.
  Result<bool> IsComputedAlike(const Case& item) const;
  std::string TokenText(int32_t token) const;
  // Returns the number of tokens of the answer that can be judged. A stop string may cut the text
  // inside a token. In that case the last tokens of the text differ from the sampled ones.
  size_t NumJudged(const Case& item, const Scores& reference) const;

  const ComparerParts parts_;
  std::vector<int32_t> end_tokens_;
  std::atomic<int64_t> num_prompts_{0};
};

}  // namespace sluice::shadow
