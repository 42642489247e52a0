// Fuzz target: compiles arbitrary bytes as a JSON schema. A refusal must have a reason and stay
// within the limits of compiling. A schema accepted with `strict` must be accepted without it, and
// a token that its mask allows must be accepted by Advance.
#include <string>
#include <vector>

#include "base/fuzz_input.h"
#include "constraints/json_schema.h"
#include "constraints/vocabulary_testing.h"
#include "constraints/xgrammar_engine.h"

namespace {

using namespace sluice;

constexpr size_t kMostBytes = size_t{64} << 10;

const ConstraintEngine& SchemaFuzzEngine() {
  static const auto engine = MakeXgrammarEngine(ByteVocabulary());
  return *engine;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMostBytes) return 0;
  const auto schema = json::Parse(fuzz::Text(data, size));
  if (!schema) return 0;
  const auto lax = CheckJsonSchema(*schema, false);
  const auto strict = CheckJsonSchema(*schema, true);
  fuzz::Require(lax || !strict);
  fuzz::Require(lax || !lax.error().message.empty());
  if (!lax) return 0;
  fuzz::Require(strict.has_value() == lax->not_enforced.empty());
  const auto constraint =
      SchemaFuzzEngine().Compile({ConstraintKind::kJsonSchema, json::Write(lax->schema)});
  if (!constraint) {
    fuzz::Require(!constraint.error().message.empty());
    return 0;
  }
  // Takes the lowest allowed token a few times.
  const auto matcher = (*constraint)->NewMatcher();
  std::vector<uint32_t> mask(MaskWords(ByteVocabulary().size));
  for (int step = 0; step < 20 && !matcher->is_finished(); ++step) {
    if (!matcher->FillMask(mask)) break;
    int32_t token = 0;
    while (token < 257 && (mask[token / 32] >> (token % 32) & 1) == 0) ++token;
    if (token == 257) break;  // no token is allowed
    fuzz::Require(matcher->Advance(token));
  }
  return 0;
}
