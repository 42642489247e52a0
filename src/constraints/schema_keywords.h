// The handling of each keyword of a JSON schema. This is the table in docs/json-schema.md; a test
// compares it with schema_rewriter.h.
#pragma once

#include <span>
#include <string>

namespace sluice {

struct SchemaKeyword {
  const char* name;
  const char* enforced;  // when the keyword is enforced; "": never
  // When the keyword is not enforced; in that case it is refused with `strict`, else ignored with a
  // warning; "": never.
  const char* not_enforced;
  // Examples of schemas, as text; "": none.
  const char* example;             // an example in which the keyword is enforced
  const char* refused_example;     // an example in which the keyword is not enforced
  bool is_always_refused = false;  // whether `refused_example` is refused even without `strict`
};

// Keywords that are not listed are ignored, as JSON Schema requires.
std::span<const SchemaKeyword> SchemaKeywords();

std::string SchemaKeywordsMarkdown();

}  // namespace sluice
