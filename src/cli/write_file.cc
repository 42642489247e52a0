#include "cli/write_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "base/write_error.h"

namespace sluice::cli {

Error WriteFailure(std::string_view option, const std::filesystem::path& file, int number) {
  const std::string why = number == 0 ? "" : fmt::format(": {}", std::strerror(number));
  return Error{WriteErrorCode(number, ErrorCode::kInternal),
               fmt::format("--{}: cannot write {}{}", option, file.string(), why),
               std::string(option)};
}

Status WriteResultFile(std::string_view option, const std::filesystem::path& file,
                       std::string_view text) {
  errno = 0;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (out) return {};
  return tl::unexpected<Error>(WriteFailure(option, file, errno));
}

}  // namespace sluice::cli
