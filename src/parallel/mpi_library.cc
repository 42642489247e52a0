#include "parallel/mpi_library.h"

#include <dlfcn.h>
#include <sys/statvfs.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace sluice {
namespace {

constexpr const char* kPluginFile = "sluice_mpi.so";

std::optional<int> NumberOf(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return {};
  const std::string_view digits(text);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) return {};
  return number;
}

}  // namespace

std::vector<std::filesystem::path> MpiPlaces(const char* file) {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path folder = program.parent_path();
  return {folder / file, folder.parent_path() / "lib" / "sluice" / file,
          folder.parent_path() / "lib" / file};
}

Result<const SluiceMpiTable*> OpenMpiLibrary() {
  std::vector<std::filesystem::path> places = MpiPlaces(kPluginFile);
  if (const char* named = std::getenv("SLUICE_MPI_PLUGIN"); named != nullptr && *named != '\0')
    places = {named};
  std::string tried;
  for (const std::filesystem::path& place : places) {
    std::error_code failed;
    if (!std::filesystem::exists(place, failed)) {
      tried += (tried.empty() ? "" : ", ") + place.string();
      continue;
    }
    // RTLD_GLOBAL, because MPI opens its components by name, and these need its symbols.
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("MPI cannot be loaded ({}): install the implementation of MPI that "
                              "{} was built with (Debian: openmpi-bin)",
                              dlerror(), place.string()));
    }
    const auto* table = static_cast<const SluiceMpiTable*>(dlsym(library, SLUICE_MPI_TABLE));
    if (table == nullptr || table->abi != SLUICE_MPI_ABI) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("{} is the MPI plugin of another version of this program: install "
                              "both from one build",
                              place.string()));
    }
    return table;
  }
  return Fail(ErrorCode::kUnsupported,
              fmt::format("there is no MPI plugin (looked for {}): build the program where MPI is "
                          "installed (Debian: libopenmpi-dev), or omit "
                          "--distributed-executor-backend to run ranks as threads",
                          tried));
}

std::optional<MpiLaunch> FindMpiLaunch() {
  struct Names {
    const char* rank;
    const char* size;
    const char* launcher;
  };
  constexpr Names kLaunchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
      {"PMI_RANK", "PMI_SIZE", "the launcher (PMI)"},
      {"PMIX_RANK", "SLURM_NTASKS", "the launcher (PMIx)"},
  };
  for (const Names& names : kLaunchers) {
    const std::optional<int> rank = NumberOf(names.rank);
    if (!rank) continue;
    return MpiLaunch{*rank, NumberOf(names.size).value_or(0), names.launcher,
                     NumberOf("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(0)};
  }
  return {};
}

Status CheckSharedMemory(int ranks_here) {
  if (ranks_here < 2) return {};
  const char* const named = std::getenv("OMPI_MCA_btl_vader_backing_directory");
  const std::string folder = named != nullptr ? named : "/dev/shm";
  struct statvfs found = {};
  // MPI then uses another transport, or reports the error.
  if (statvfs(folder.c_str(), &found) != 0) return {};
  // Default of Open MPI's btl_vader_segment_size.
  const int segment = NumberOf("OMPI_MCA_btl_vader_segment_size").value_or(4 << 20);
  const auto needed = static_cast<uint64_t>(ranks_here) * static_cast<uint64_t>(segment);
  const auto free = static_cast<uint64_t>(found.f_bavail) * found.f_frsize;
  if (free >= needed) return {};
  return Fail(
      ErrorCode::kResourceExhausted,
      fmt::format("{} has {} KiB free, and {} ranks on this machine exchange through {} KiB "
                  "of it: make it larger (docker run --shm-size 1g, in Kubernetes an "
                  "emptyDir with medium Memory), or set "
                  "OMPI_MCA_btl_vader_backing_directory to a folder with more",
                  folder, free / 1024, ranks_here, needed / 1024));
}

}  // namespace sluice
