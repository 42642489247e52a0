#include "base/append_format.h"

#include <iterator>

#include <fmt/format.h>

namespace sluice {

void AppendFormatted(std::string& out, fmt::string_view format, fmt::format_args args) {
  fmt::vformat_to(std::back_inserter(out), format, args);
}

}  // namespace sluice
