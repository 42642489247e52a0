// Reads the parts of an AMD code object that the stand-in of HIP's runtime needs. A code object is
// an ELF file with a note in MessagePack ("Code Object V3 and Above" in LLVM's User Guide for
// AMDGPU).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fake_hip {

struct CodeKernel {
  size_t args_bytes = 0;      // of all explicit arguments
  unsigned num_args = 0;      // explicit ones
  unsigned most_threads = 0;  // of a block
  unsigned shared_bytes = 0;  // bytes that every block takes, besides those that a launch requests
  unsigned wave_lanes = 0;
};

struct CodeObject {
  unsigned machine = 0;  // of the ELF header's flags
  std::map<std::string, CodeKernel> kernels;
  std::vector<std::string> undefined;  // symbols that it has from elsewhere
  std::string fault;                   // "": the file is as expected
};

CodeObject ReadCodeObject(const void* image);

// Returns the addresses of the functions in this library's symbol table, by name.
std::map<std::string, const void*> OwnFunctions();

}  // namespace fake_hip
