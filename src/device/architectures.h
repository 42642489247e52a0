// Which GPUs the compiled kernels run on.
#pragma once

#include <string_view>

namespace sluice {

// `architectures`: the list that CMake compiled for, such as "90a;80". Entries with 'a' run only on
// that compute capability, others also on later ones of the same major version.
bool ArchitecturesCover(std::string_view architectures, int compute_major, int compute_minor);

}  // namespace sluice
