// Reads the parts of an AMD code object that the fake HIP runtime needs. A code object is an ELF
// file with a note in MessagePack ("Code Object V3 and Above" in LLVM's User Guide for AMDGPU).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fake_hip {

struct CodeKernel {
  size_t args_bytes = 0;      // size of all explicit arguments
  unsigned num_args = 0;      // number of explicit arguments
  unsigned most_threads = 0;  // maximum number of threads of a block
  unsigned shared_bytes = 0;  // static shared memory of a block, in addition to what a launch
                              // requests
  unsigned wave_lanes = 0;
};

struct CodeObject {
  unsigned machine = 0;  // from the ELF header's flags
  std::map<std::string, CodeKernel> kernels;
  std::vector<std::string> undefined;  // undefined symbols
  std::string fault;                   // "": the file is as expected
};

CodeObject ReadCodeObject(const void* image);

// Returns the addresses of the functions in this library's symbol table, by name.
std::map<std::string, const void*> OwnFunctions();

}  // namespace fake_hip
