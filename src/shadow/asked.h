// The parts of a request that a comparison needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/model_text.h"

namespace sluice::shadow {

// The sampling settings that the request asks for.
struct Choosing {
  double temperature = 1;  // 0: greedy
  double top_p = 1;
  int64_t top_k = 0;  // 0: off
  double min_p = 0;

  bool is_greedy() const { return temperature < 1e-5; }
};

struct Asked {
  bool is_chat = false;
  json::Value body;  // the body of the request
  // The prompts of a completion, each a text or a list of ids; one null for a chat.
  std::vector<json::Value> prompts;
  int64_t num_choices = 1;  // n
  Choosing choosing;
  int64_t min_tokens = 0;
  bool ignores_end = false;
  bool has_stops = false;  // whether the request has stop strings or stop tokens
  // Another field that affects which token is chosen ("repetition_penalty", "response_format",
  // ...), so that scores alone cannot show which token is right; "" if there is none.
  std::string also;
  // Why the answer is not compared at all; "" if it is compared.
  std::string not_compared;
};

// Whether answers to requests with this method and path are compared.
bool IsCompared(std::string_view method, std::string_view path);

// Reads a request's body. `defaults`: values of missing fields. kInvalidData if the body is not a
// JSON object with a prompt.
Result<Asked> ReadAsked(std::string_view path, std::string_view body,
                        const SamplingDefaults& defaults);

}  // namespace sluice::shadow
