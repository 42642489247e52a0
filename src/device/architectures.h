// Which GPUs the compiled kernels run on.
#pragma once

#include <string_view>

namespace sluice {

// `architectures` is the list that CMake compiled for, such as "90a;80": those with 'a' run on
// exactly that compute capability, others also on later ones of the same major version.
bool ArchitecturesCover(std::string_view architectures, int compute_major, int compute_minor);

}  // namespace sluice
