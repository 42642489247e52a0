// How each keyword of a JSON schema is handled: the table in docs/json-schema.md. A test compares
// it with schema_rewriter.h.
#pragma once

#include <span>
#include <string>

namespace sluice {

struct SchemaKeyword {
  const char* name;
  const char* enforced;  // when it is enforced; "" for never
  const char*
      not_enforced;  // when it is refused with `strict`, else ignored with a warning; "" for never
  // Examples of schemas, as text; "" for none.
  const char* example;             // enforced
  const char* refused_example;     // not enforced
  bool is_always_refused = false;  // `refused_example` is refused without `strict`, too
};

// Other keywords are ignored, as JSON Schema requires.
std::span<const SchemaKeyword> SchemaKeywords();

std::string SchemaKeywordsMarkdown();

}  // namespace sluice
