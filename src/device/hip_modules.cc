#include "device/hip_modules.h"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "device/hip_launch.h"

namespace sluice {
namespace {

constexpr int kMostDevices = 64;

struct Kernel {
  const void* host;  // the address that represents it on the host
  const char* name;  // name in the code object
};
// The data that Clang registers for one file of kernels.
struct Module {
  const char* bundle;
  std::vector<Kernel> kernels;
};
// The functions of a device, keyed by host address.
using Functions = std::unordered_map<const void*, void*>;

struct Registry {
  std::vector<std::unique_ptr<Module>> modules;  // complete before main
  std::mutex mutex;
  std::array<std::atomic<const Functions*>, kMostDevices> loaded = {};
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;  // Never freed: used until the last thread ends.
  return *registry;
}

uint64_t ReadNumber(const char* from) {
  uint64_t value;
  memcpy(&value, from, sizeof(value));
  return value;
}

// Returns the code object for an architecture from a bundle in Clang's format: a magic word, a
// count, then an offset, a size and a name for each. Returns null if there is none; `names`
// receives the names in the bundle.
const char* CodeOf(const char* bundle, std::string_view architecture,
                   std::vector<std::string>& names) {
  constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";
  if (std::string_view(bundle, kMagic.size()) != kMagic) return nullptr;
  const char* entry = bundle + kMagic.size() + sizeof(uint64_t);
  for (uint64_t left = ReadNumber(bundle + kMagic.size()); left > 0; --left) {
    const uint64_t offset = ReadNumber(entry), name_bytes = ReadNumber(entry + 16);
    const std::string_view name(entry + 24, name_bytes);
    entry += 24 + name_bytes;
    if (!name.starts_with("hip")) continue;
    const std::string_view own = name.substr(name.rfind('-') + 1);
    if (own == architecture) return bundle + offset;
    names.emplace_back(own);
  }
  return nullptr;
}

}  // namespace

Status LoadHipKernels(const HipLibrary& library, int ordinal, const std::string& architecture) {
  Registry& registry = TheRegistry();
  if (ordinal < 0 || ordinal >= kMostDevices)
    return Fail(ErrorCode::kUnsupported,
                fmt::format("HIP device {}: expected one of 0 to {}", ordinal, kMostDevices - 1));
  const std::lock_guard lock(registry.mutex);
  auto& loaded = registry.loaded[static_cast<size_t>(ordinal)];
  if (loaded != nullptr) return {};
  auto functions = std::make_unique<Functions>();
  int code = library.runtime.set_device(ordinal);
  if (code != kGpuSuccess) return tl::unexpected<Error>(HipFailure("selecting a device", code));
  for (const std::unique_ptr<Module>& module : registry.modules) {
    std::vector<std::string> names;
    const char* image = CodeOf(module->bundle, architecture, names);
    if (image == nullptr)
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("HIP device {} is of architecture {}, and this program's kernels are "
                              "compiled for {}; build it with -DSLUICE_HIP_ARCHITECTURES={}",
                              ordinal, architecture, fmt::join(names, ", "), architecture));
    void* native = nullptr;
    code = library.load_module(&native, image);
    if (code != kGpuSuccess) {
      library.runtime.take_last_error();
      return tl::unexpected<Error>(HipFailure(
          fmt::format("loading kernels for {} onto HIP device {}", architecture, ordinal), code));
    }
    for (const Kernel& kernel : module->kernels) {
      void* function = nullptr;
      code = library.module_function(&function, native, kernel.name);
      if (code != kGpuSuccess) {
        library.runtime.take_last_error();
        return tl::unexpected<Error>(
            HipFailure(fmt::format("finding kernel {}", kernel.name), code));
      }
      functions->emplace(kernel.host, function);
    }
  }
  loaded = functions.release();
  return {};
}

int LaunchHipKernel(const HipLaunch& launch) {
  const auto opened = OpenHipLibrary();
  if (!opened) return kHipSharedObjectInitFailed;
  const HipLibrary& library = **opened;
  int ordinal = 0;
  if (const int code = library.get_device(&ordinal); code != kGpuSuccess) return code;
  if (ordinal < 0 || ordinal >= kMostDevices) return kHipNoDevice;
  const Functions* functions = TheRegistry().loaded[static_cast<size_t>(ordinal)];
  if (functions == nullptr) return kHipSharedObjectInitFailed;
  const auto found = functions->find(launch.kernel);
  if (found == functions->end()) return kHipSharedObjectSymbolNotFound;
  void* arguments[] = {const_cast<void*>(launch.args)};
  const int code = library.launch_kernel(found->second, launch.grid_x, launch.grid_y, launch.grid_z,
                                         launch.threads, 1, 1, launch.shared_bytes, launch.stream,
                                         arguments, nullptr);
  if (code != kGpuSuccess) library.runtime.take_last_error();
  return code;
}

}  // namespace sluice

// Functions that Clang's host code calls before main and at exit. Hidden, so that they do not
// replace those of a HIP library that is opened later.
#define SLUICE_OF_CLANG extern "C" __attribute__((visibility("hidden"), used))

namespace {

struct BundleWrapper {
  unsigned magic;
  unsigned version;
  const char* bundle;
  void* unused;
};
struct Dim3 {
  unsigned x, y, z;
};

}  // namespace

// NOLINTBEGIN: names of Clang and of HIP
SLUICE_OF_CLANG void** __hipRegisterFatBinary(const void* wrapper) {
  auto& modules = sluice::TheRegistry().modules;
  modules.push_back(std::make_unique<sluice::Module>());
  modules.back()->bundle = static_cast<const BundleWrapper*>(wrapper)->bundle;
  return reinterpret_cast<void**>(modules.back().get());
}
SLUICE_OF_CLANG void __hipRegisterFunction(void** module, const void* host, char* /*name*/,
                                           const char* device_name, unsigned /*threads*/,
                                           void* /*thread*/, void* /*block*/, void* /*block_size*/,
                                           void* /*grid_size*/, int* /*warp_size*/) {
  reinterpret_cast<sluice::Module*>(module)->kernels.push_back({host, device_name});
}
SLUICE_OF_CLANG void __hipUnregisterFatBinary(void** /*module*/) {}
// Clang's stubs of kernels call these two; kernels are launched by LaunchHipKernel instead.
SLUICE_OF_CLANG int __hipPopCallConfiguration(Dim3* /*grid*/, Dim3* /*block*/, size_t* /*shared*/,
                                              void* /*stream*/) {
  return sluice::kHipNotSupported;
}
SLUICE_OF_CLANG int hipLaunchKernel(const void* /*kernel*/, Dim3 /*grid*/, Dim3 /*block*/,
                                    void** /*args*/, size_t /*shared*/, void* /*stream*/) {
  return sluice::kHipNotSupported;
}
// NOLINTEND
