// What becomes of each keyword of a JSON schema: the table in docs/json-schema.md, which a test
// holds against schema_rewriter.h.
#pragma once

#include <span>
#include <string>

namespace sluice {

struct SchemaKeyword {
  const char* name;
  const char* enforced;  // when; "" for never
  const char*
      not_enforced;  // when: refused with `strict`, else ignored with a warning; "" for never
  // Schemas as text; "" for none.
  const char* example;             // of what is enforced
  const char* refused_example;     // of what is not
  bool is_always_refused = false;  // what is not enforced, without `strict` too
};

// Keywords that are not here are ignored, as JSON Schema wants it.
std::span<const SchemaKeyword> SchemaKeywords();

std::string SchemaKeywordsMarkdown();

}  // namespace sluice
