// Finds the folders of vendor libraries, which the program opens at run time.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace sluice {

// Folders in search order, each with a trailing slash: "" (the loader's own search), lib64 of
// CUDA_HOME, CUDA_PATH and /usr/local/cuda, then the folders of pip's `python_packages` ("cublas":
// nvidia/cublas/lib). These are searched for each python3 in PATH (in its folder and in those to
// which its links lead) and in ~/.local.
std::vector<std::string> VendorFolders(std::span<const char* const> python_packages);

// The same for AMD's libraries: "", lib of ROCM_PATH, and /opt/rocm/lib.
std::vector<std::string> RocmFolders();

}  // namespace sluice
