#include "base/json_ascii.h"

#include <cstdint>

#include "base/json.h"
#include "base/utf8.h"

namespace sluice::json {
namespace {

void AppendUnit(std::string& out, uint32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4)
    out.push_back("0123456789abcdef"[unit >> shift & 15]);
}

}  // namespace

void AppendAsciiString(std::string& out, std::string_view text) {
  std::string quoted;
  AppendString(quoted, text);  // valid UTF-8, even if `text` is not
  for (std::string_view rest = quoted; !rest.empty();) {
    const size_t size = FirstUtf8Sequence(rest).size;
    const auto lead = static_cast<unsigned char>(rest[0]);
    if (lead < 0x7F) {
      out.push_back(rest[0]);
    } else {
      uint32_t code = size == 1 ? lead : lead & (0x7Fu >> size);
      for (size_t i = 1; i < size; ++i)
        code = code << 6 | (static_cast<unsigned char>(rest[i]) & 0x3F);
      if (code >= 0x10000) {
        AppendUnit(out, 0xD800 + ((code - 0x10000) >> 10));
        code = 0xDC00 + ((code - 0x10000) & 0x3FF);
      }
      AppendUnit(out, code);
    }
    rest.remove_prefix(size);
  }
}

}  // namespace sluice::json
