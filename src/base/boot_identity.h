// Which start of the machine this is.
#pragma once

#include <string>

namespace sluice {

// Linux's boot id, another one after each start; "" where the kernel does not tell.
std::string BootIdentity();

}  // namespace sluice
