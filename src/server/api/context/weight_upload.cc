#include "server/api/context/weight_upload.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/safetensors.h"

namespace sluice {
namespace {

Status WriteWhole(const std::filesystem::path& path, std::string_view content) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (file) return {};
  const int problem = errno;
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  return Fail(ErrorCode::kResourceExhausted,
              fmt::format("cannot write {}: {}; free some space, or name another folder in "
                          "--weight-transfer-config",
                          path.string(), std::strerror(problem)));
}

}  // namespace

Result<std::unique_ptr<WeightUpload>> WeightUpload::Make(const std::filesystem::path& parent,
                                                         uint64_t most_bytes) {
  std::error_code error;
  const std::filesystem::path place =
      parent.empty() ? std::filesystem::temp_directory_path(error) : parent;
  std::string pattern = (place / "sluice-weights-XXXXXX").string();
  if (error || mkdtemp(pattern.data()) == nullptr) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("cannot create a folder for weights in {}: {}; name another \"folder\" "
                            "in --weight-transfer-config",
                            place.string(), error ? error.message() : std::strerror(errno)));
  }
  return std::unique_ptr<WeightUpload>(new WeightUpload(pattern, most_bytes));
}

WeightUpload::~WeightUpload() {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
  if (error) LOG_WARNING("server", "cannot remove {}: {}", folder_.string(), error.message());
}

Result<int64_t> WeightUpload::Add(std::string_view piece) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(piece));
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(bytes, piece.size());
  if (!header) {
    header.error().message =
        "the body is not a complete safetensors file: " + header.error().message;
    return tl::unexpected<Error>(std::move(header.error()));
  }
  if (num_pieces_ == kMostPieces) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("an update has at most {} pieces; send larger ones", kMostPieces),
                std::string(kTooLarge));
  }
  if (piece.size() > most_bytes_ - bytes_) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{} bytes in addition to {} exceed the limit of {} for an update; "
                            "raise \"max_bytes\" in --weight-transfer-config",
                            piece.size(), bytes_, most_bytes_),
                std::string(kTooLarge));
  }
  const std::string name = fmt::format("piece-{:05}.safetensors", num_pieces_);
  RETURN_IF_ERROR(WriteWhole(folder_ / name, piece));
  ++num_pieces_;
  bytes_ += piece.size();
  for (const TensorInfo& tensor : header->tensors) file_of_[tensor.name] = name;
  return std::ssize(header->tensors);
}

Status WeightUpload::Seal() const {
  json::Value::Object map;
  for (const auto& [tensor, file] : file_of_) map.emplace_back(tensor, file);
  json::Value index(json::Value::Object{});
  index.Set("weight_map", json::Value(std::move(map)));
  return WriteWhole(folder_ / "model.safetensors.index.json", json::Write(index));
}

}  // namespace sluice
