#include "base/append_format.h"

#include <fmt/format.h>

namespace sluice {

void AppendFormatted(std::string& out, fmt::string_view format, fmt::format_args args) {
  // Not straight into the string: what fmt does not fit into its own buffer it would append in a
  // destructor, where a lack of memory ends the process.
  fmt::memory_buffer buffer;
  fmt::vformat_to(fmt::appender(buffer), format, args);
  out.append(buffer.data(), buffer.size());
}

}  // namespace sluice
