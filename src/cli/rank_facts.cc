#include "cli/rank_facts.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <xxhash.h>

#include "checkpoint/mistral_format.h"
#include "kernels/dispatch.h"
#include "kernels/numeric_fingerprint.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostHeaderBytes = uint64_t{100} << 20;

// Returns the first `size` bytes of a file, or fewer if it is shorter; "" if it cannot be read.
// Takes no more memory than the file has bytes.
std::string FirstBytes(const fs::path& file, uint64_t size) {
  std::error_code failed;
  const uintmax_t file_bytes = fs::file_size(file, failed);
  std::string bytes(failed ? 0 : std::min<uintmax_t>(size, file_bytes), '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(bytes.data(), static_cast<std::streamsize>(size));
  bytes.resize(static_cast<size_t>(stream.gcount()));
  return bytes;
}

// Returns the header of a safetensors file, including its length; for other files, the first bytes.
// Loading such a file reports the error later.
std::string HeaderOf(const fs::path& file) {
  const std::string length = FirstBytes(file, 8);
  uint64_t header_bytes = 0;
  if (length.size() == 8) std::memcpy(&header_bytes, length.data(), 8);
  return FirstBytes(file, 8 + std::min(header_bytes, kMostHeaderBytes));
}

Result<std::string> HashOfFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  if (failed) {
    return Fail(ErrorCode::kNotFound, fmt::format("{}: {}", folder.string(), failed.message()),
                "model");
  }
  std::sort(files.begin(), files.end());
  std::string all = FirstBytes(folder / "config.json", kMostHeaderBytes) +
                    FirstBytes(folder / kMistralParams, kMostHeaderBytes);
  for (const fs::path& file : files) {
    const std::string header = HeaderOf(file);
    all += fmt::format("{} {:016x} {}\n", file.filename().string(),
                       XXH3_64bits(header.data(), header.size()), fs::file_size(file, failed));
  }
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

}  // namespace

Result<std::vector<Fact>> ModelFacts(const EngineConfig& config) {
  RETURN_IF_ERROR(kernels::SelectIsa(config.cpu_isa ? kernels::IsaName(*config.cpu_isa) : "auto"));
  ASSIGN_OR_RETURN(std::string files, HashOfFiles(config.model_folder));
  return std::vector<Fact>{
      {"model files", std::move(files),
       "give all machines the same revision of the model, with all of its files"},
      {"instruction set", std::string(kernels::IsaName(kernels::CurrentIsa())),
       "give all ranks one --cpu-isa that every machine has (sluice doctor lists them)"},
      {"arithmetic", fmt::format("{:016x}", kernels::NumericFingerprint()),
       "run the same build of the program on the same version of the system's libraries"}};
}

}  // namespace sluice::cli
