// Shared by the fuzz targets of constraints that are written as text.
#pragma once

#include <string>
#include <vector>

#include "base/fuzz_input.h"
#include "constraints/vocabulary_testing.h"
#include "constraints/xgrammar_engine.h"

namespace sluice {

// Compiles arbitrary bytes. A refusal must have a reason and stay within the limits of compiling.
// An accepted constraint must be followed within the limits of a step, or report that it was
// stopped.
inline int FuzzConstraint(ConstraintKind kind, const uint8_t* data, size_t size) {
  constexpr size_t kMostBytes = size_t{64} << 10;
  static const auto engine = MakeXgrammarEngine(ByteVocabulary({"ab", "\":", "<a>", "  ", "\n\n"}));
  static const Vocabulary vocabulary = ByteVocabulary({"ab", "\":", "<a>", "  ", "\n\n"});
  if (size > kMostBytes) return 0;
  const auto constraint = engine->Compile({kind, std::string(fuzz::Text(data, size))});
  if (!constraint) {
    fuzz::Require(!constraint.error().message.empty());
    return 0;
  }
  const auto matcher = (*constraint)->NewMatcher();
  std::vector<uint32_t> mask(MaskWords(vocabulary.size));
  for (int step = 0; step < 24 && !matcher->is_finished(); ++step) {
    if (!matcher->FillMask(mask)) break;
    // Chooses the lowest allowed token in even steps, the highest in odd steps.
    int32_t token = -1;
    for (int32_t i = 0; i < vocabulary.size; ++i) {
      if ((mask[i / 32] >> (i % 32) & 1) == 0) continue;
      token = i;
      if (step % 2 == 0) break;
    }
    if (token < 0) break;  // no token is allowed
    if (!matcher->Advance(token)) {
      fuzz::Require(matcher->is_stopped());
      break;
    }
    if (step % 5 == 4 && !matcher->is_finished()) {
      matcher->RollBack(1);
      if (!matcher->Advance(token)) break;
    }
  }
  return 0;
}

}  // namespace sluice
