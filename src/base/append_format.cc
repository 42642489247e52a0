#include "base/append_format.h"

#include <fmt/format.h>

namespace sluice {

void AppendFormatted(std::string& out, fmt::string_view format, fmt::format_args args) {
  // Formats into a buffer of fmt first. If fmt formatted straight into the string, one of its
  // destructors would append to the string, and running out of memory there would end the process.
  fmt::memory_buffer buffer;
  fmt::vformat_to(fmt::appender(buffer), format, args);
  out.append(buffer.data(), buffer.size());
}

}  // namespace sluice
