#include "checkpoint/weights_digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/hex.h"
#include "base/list_folder.h"
#include "checkpoint/mistral_format.h"

namespace sluice {
namespace {

class Sha256Sum {
 public:
  Sha256Sum() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  }
  void Add(const void* bytes, size_t size) { EVP_DigestUpdate(context_.get(), bytes, size); }
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return HexDigits({digest, size});
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

Result<std::string> FileDigest(const std::filesystem::path& path, const std::atomic<bool>* stop) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  const auto fail = [&] {
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  };
  if (file == nullptr) return fail();
  Sha256Sum sum;
  std::vector<char> part(size_t{1} << 20);
  while (const size_t size = std::fread(part.data(), 1, part.size(), file.get())) {
    if (stop != nullptr && stop->load()) return Fail(ErrorCode::kCancelled, "stopped");
    sum.Add(part.data(), size);
  }
  if (std::ferror(file.get()) != 0) return fail();
  return sum.Hex();
}

}  // namespace

Result<std::string> WeightsDigest(const std::filesystem::path& folder,
                                  const std::atomic<bool>* stop) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  bool any_weights = false;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    const bool is_weights = path.extension() == ".safetensors";
    any_weights = any_weights || is_weights;
    const std::filesystem::path name = path.filename();
    if (is_weights || name == "config.json" || name == kMistralParams) files.push_back(path);
  }
  if (error) {
    const bool is_there = error != std::errc::no_such_file_or_directory;
    return Fail(is_there ? ErrorCode::kInvalidData : ErrorCode::kNotFound,
                fmt::format("{}: cannot be listed: {}", folder.string(), error.message()));
  }
  if (!any_weights) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{}: expected *.safetensors files, found none", folder.string()));
  }
  std::ranges::sort(files);
  Sha256Sum sum;
  for (const std::filesystem::path& path : files) {
    ASSIGN_OR_RETURN(const std::string digest, FileDigest(path, stop));
    const std::string line = fmt::format("{}  {}\n", digest, path.filename().string());
    sum.Add(line.data(), line.size());
  }
  return "sha256:" + sum.Hex();
}

}  // namespace sluice
