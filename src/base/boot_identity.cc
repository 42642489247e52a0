#include "base/boot_identity.h"

#include <fstream>

namespace sluice {

std::string BootIdentity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return boot;
}

}  // namespace sluice
