#include "parallel/listen_guard.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "parallel/mpi_library.h"

namespace sluice {
namespace {

constexpr const char* kGuardFile = "sluice_listen.so";

}  // namespace

Result<std::map<std::string, std::string>> ListenGuard(const std::string& address) {
  std::string tried;
  for (const std::filesystem::path& place : MpiPlaces(kGuardFile)) {
    std::error_code failed;
    if (!std::filesystem::exists(place, failed)) {
      tried += (tried.empty() ? "" : ", ") + place.string();
      continue;
    }
    const char* const others = std::getenv("LD_PRELOAD");
    const bool are_others = others != nullptr && *others != '\0';
    return std::map<std::string, std::string>{
        {"LD_PRELOAD", place.string() + (are_others ? ":" + std::string(others) : "")},
        {kListenAddressVariable, address}};
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("there is no {} (looked for {}), without which MPI would listen on all "
                          "addresses: install it next to sluice_mpi.so, from the same build",
                          kGuardFile, tried));
}

Status EndListenGuard() {
  if (std::getenv(kListenAddressVariable) == nullptr) return {};
  const auto end = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "sluice_end_listen_guard"));
  if (end == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} was not loaded into this rank, so MPI listens at all addresses: "
                            "its folder's name must have neither spaces nor colons (LD_PRELOAD)",
                            kGuardFile));
  }
  end();
  return {};
}

}  // namespace sluice
