// Maps errno of a failed write to an error code that states the cause.
#pragma once

#include <cerrno>

#include "base/result.h"

namespace sluice {

// Converts errno of a call that failed to create or write a file: kResourceExhausted if the disk or
// a quota is full; kUnsupported if writing is not permitted (read-only file system, permissions);
// kInvalidArgument if the path cannot be a file; else `otherwise`.
inline ErrorCode WriteErrorCode(int number, ErrorCode otherwise) {
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ErrorCode::kResourceExhausted;
    case EROFS:
    case EACCES:
    case EPERM: return ErrorCode::kUnsupported;
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP: return ErrorCode::kInvalidArgument;
    default: return otherwise;
  }
}

}  // namespace sluice
