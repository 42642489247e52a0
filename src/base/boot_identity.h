// Identifies the current boot of the machine.
#pragma once

#include <string>

namespace sluice {

// Linux's boot id, which changes with each boot; "" if the kernel does not provide it.
std::string BootIdentity();

}  // namespace sluice
