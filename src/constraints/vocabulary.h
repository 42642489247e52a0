// The tokens of a model as bytes: what a constraint is compiled for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct Vocabulary {
  // By id: the bytes that a token adds to the text; "" for a token that never may be chosen under a
  // constraint.
  std::vector<std::string> tokens;
  // Rows of the model's logits, >= tokens.size(); ids past the tokens never may be chosen.
  int32_t size = 0;
  // Tokens that end an answer once the constraint is met. Not empty.
  std::vector<int32_t> end_tokens;
};

}  // namespace sluice
