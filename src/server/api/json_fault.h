// Why a text cannot be taken as JSON, and where.
#pragma once

#include <cstddef>
#include <string_view>

namespace sluice {

struct JsonFault {
  enum class Kind {
    kNone,
    kSyntax,     // a byte that cannot follow what stands before it
    kTooDeep,    // more arrays and objects inside each other than allowed
    kNotFinite,  // NaN, Infinity, or a number too large for a double
    kSurrogate,  // half of a surrogate pair in an escape
  };
  Kind kind = Kind::kNone;
  size_t offset = 0;          // of the first byte at fault, or of the string that does not end
  std::string_view expected;  // for kSyntax: what could have stood there
  std::string_view member;    // the member of the outermost object that holds the fault, as written
};

// Finds the first fault of a text that json::Parse has refused; it makes no values. Linear in the
// length of the text. REQUIRES: `text` is valid UTF-8.
JsonFault FindJsonFault(std::string_view text, int max_depth);

}  // namespace sluice
