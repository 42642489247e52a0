// Runs and times batches of prompts on an engine in this process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "options/settings.h"

namespace sluice::cli {

// Totals over the steps of one batch of prompts.
struct StepTotals {
  int64_t steps = 0;
  int64_t tokens = 0;        // number of generated tokens
  double model_seconds = 0;  // time inside Model::Forward
};

struct BatchResult {
  double seconds = 0;          // from the first Submit to the last token
  double prefill_seconds = 0;  // from the first Submit until every prompt has its first token
  std::vector<double> first_token_seconds;  // for each prompt, since its Submit
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  // Totals over the steps after the last step that computed prompt tokens, while all sequences were
  // running. Zero if prompts had to wait until others had ended.
  double decode_seconds = 0;
  StepTotals decode;

  double decode_tokens_per_second() const {
    return decode_seconds > 0 ? static_cast<double>(decode.tokens) / decode_seconds : 0;
  }
  // Time per step outside the forward pass.
  double host_seconds_per_step() const {
    return decode.steps > 0
               ? (decode_seconds - decode.model_seconds) / static_cast<double>(decode.steps)
               : 0;
  }
};

class BenchEngine {
 public:
  // Loads the model of `settings`. Limits that are not given are set just large enough for
  // `num_sequences` sequences of `tokens` tokens.
  static Result<std::unique_ptr<BenchEngine>> Load(const options::Settings& settings,
                                                   int64_t num_sequences, int64_t tokens);
  ~BenchEngine();

  const EngineInfo& info() const;
  // Runs `count` different prompts of random tokens, all submitted simultaneously. Each answer has
  // exactly `output_len` tokens.
  Result<BatchResult> Run(int64_t count, int64_t input_len, int64_t output_len);

 private:
  class Watch;
  BenchEngine();

  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Engine> engine_;
  uint64_t next_seed_ = 1;
};

}  // namespace sluice::cli
