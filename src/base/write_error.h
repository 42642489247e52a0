// Why a file could not be written, as an error whose code says the cause.
#pragma once

#include <cerrno>

#include "base/result.h"

namespace sluice {

// The code for errno of a call that failed to create or write a file: kResourceExhausted where the
// disk or a quota is full, kUnsupported where the place may not be written (a read-only file
// system, permissions), kInvalidArgument where it is no place for a file, `otherwise` for the rest.
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
