#include "device/stand_in.h"

#include "device/hip_library.h"

namespace sluice {

bool RunsOnCpu(const DeviceInfo& info) {
  if (info.kind != DeviceKind::kHip) return info.kind == DeviceKind::kEmulated;
  const auto library = OpenHipLibrary();
  return library && (*library)->is_stand_in;
}

}  // namespace sluice
