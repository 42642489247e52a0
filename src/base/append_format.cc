#include "base/append_format.h"

#include <fmt/format.h>

namespace sluice {

void AppendFormatted(std::string& out, fmt::string_view format, fmt::format_args args) {
  // Formats into fmt's buffer first. If fmt formatted straight into the string, it would append the
  // rest of its own buffer in a destructor, where running out of memory ends the process.
  fmt::memory_buffer buffer;
  fmt::vformat_to(fmt::appender(buffer), format, args);
  out.append(buffer.data(), buffer.size());
}

}  // namespace sluice
