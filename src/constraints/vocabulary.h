// The tokens of a model as bytes, for which constraints are compiled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct Vocabulary {
  // Indexed by id: the bytes that a token adds to the text; "" for a token that constraints never
  // allow.
  std::vector<std::string> tokens;
  // Number of the model's logits, >= tokens.size(). Ids beyond the tokens are never allowed.
  int32_t size = 0;
  // Tokens that end an answer once the constraint is satisfied. Not empty.
  std::vector<int32_t> end_tokens;
};

}  // namespace sluice
