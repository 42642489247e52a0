// Where the libraries of an accelerator's vendor are, which the program opens when it runs.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace sluice {

// Folders in the order in which they are looked through, each with a slash after it: "" (where the
// loader finds libraries), lib64 of CUDA_HOME, CUDA_PATH and /usr/local/cuda, and those of pip's
// `python_packages` ("cublas": nvidia/cublas/lib), of the python3 that PATH shows.
std::vector<std::string> VendorFolders(std::span<const char* const> python_packages);

}  // namespace sluice
