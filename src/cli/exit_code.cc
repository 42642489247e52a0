#include "cli/exit_code.h"

namespace sluice::cli {

int ExitCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return kExitUsage;
    case ErrorCode::kNotFound:
    case ErrorCode::kUnsupported:
    case ErrorCode::kInvalidData: return 3;
    case ErrorCode::kResourceExhausted: return 4;
    case ErrorCode::kUnavailable: return 5;
    case ErrorCode::kAddressInUse: return 6;
    case ErrorCode::kCancelled: return 130;
    case ErrorCode::kInternal: return 1;
  }
  return 1;
}

std::string ExitCodeHelp() {
  return "Exit codes:\n"
         "  0    success; also after SIGTERM or SIGINT once running requests have finished\n"
         "  1    failure at run time\n"
         "  2    usage: unknown option, bad value, unknown YAML key\n"
         "  3    the model or a setting is not supported here, a file is missing or\n"
         "       damaged, or a place may not be written (read-only disk, permissions)\n"
         "  4    it will not fit in memory or on the disk\n"
         "  5    a server is not reachable, or a model cannot be downloaded\n"
         "  6    the address is in use\n"
         "  130  interrupted by SIGINT before it was done, or by a second one\n"
         "  143  the same by SIGTERM\n";
}

}  // namespace sluice::cli
