// Determines on which GPUs the compiled kernels run.
#pragma once

#include <string_view>

namespace sluice {

// Returns whether the kernels run on a GPU. `architectures`: the list for which CMake compiled,
// such as "90a;80". Entries with 'a' run only on that compute capability, other entries also on
// later capabilities of the same major version.
bool ArchitecturesCover(std::string_view architectures, int compute_major, int compute_minor);

}  // namespace sluice
