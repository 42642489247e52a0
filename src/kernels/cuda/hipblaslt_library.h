// hipBLASLt, AMD's library of matrix products, opened at run time: the program is neither compiled
// nor linked against it. Its functions mirror cuBLASLt's, with other numeric constants. This header
// gives them the interface of cublaslt_library.h.
//
// Remaining differences: There is no fast accumulation of E4M3. Alignment preferences are ignored,
// because the library has none. An algorithm is valid only if the library still proposes it.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "kernels/cuda/cublaslt_library.h"

namespace sluice::device::hipblaslt {

struct Library {
  cublaslt::Functions functions = {};
  int64_t version = 0;  // 100200: 1.2.0
  std::string file;
};

// The first version whose E4M3 products may have kScaleOuterVector.
constexpr int64_t kOuterVectorVersion = 100000;

// Opens the library at the first call: the file that SLUICE_HIPBLASLT names, else
// libhipblaslt.so.1, then .0, in the loader's path, lib of ROCM_PATH and /opt/rocm/lib. Later calls
// return the same library, or the same error: kNotFound names the files that were tried and what to
// install; kUnsupported names the missing function, or reports that the library cannot be
// initialized. Reads the library's version, on the calling thread's current device. Thread safe.
Result<const Library*> Open();
// Returns whether the user named the library that Open opens; then a failure is an error.
bool IsNamedByUser();

}  // namespace sluice::device::hipblaslt
