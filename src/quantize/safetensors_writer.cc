#include "quantize/safetensors_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/json.h"
#include "base/write_error.h"

namespace sluice {
namespace {

Error SystemError(const std::filesystem::path& path, const char* what) {
  const int code = errno;
  return {WriteErrorCode(code, ErrorCode::kUnavailable),
          fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(code)),
          path.string()};
}

Status WriteAll(int file, const std::filesystem::path& path, std::span<const std::byte> bytes,
                int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return tl::unexpected<Error>(SystemError(path, "write"));
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += count;
  }
  return {};
}

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

int64_t PlannedTensor::size_bytes() const {
  int64_t bits = BitsPerElement(type);
  for (const int64_t size : shape) bits *= size;
  return bits / 8;
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& other) noexcept
    : folder_(std::move(other.folder_)),
      names_(std::move(other.names_)),
      files_(std::exchange(other.files_, {})),
      places_(std::move(other.places_)),
      total_bytes_(other.total_bytes_) {}

SafetensorsWriter::~SafetensorsWriter() {
  for (const int file : files_) ::close(file);
}

Status SafetensorsWriter::CreateFile(const std::string& name,
                                     std::vector<const PlannedTensor*> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const PlannedTensor* a, const PlannedTensor* b) {
    const int left = BitsPerElement(a->type), right = BitsPerElement(b->type);
    return left != right ? left > right : a->name < b->name;
  });
  std::string header = R"({"__metadata__":{"format":"pt"})";
  int64_t offset = 0;
  for (const PlannedTensor* tensor : tensors) {
    header += ",";
    json::AppendString(header, tensor->name);
    header += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          ElementTypeName(tensor->type), fmt::join(tensor->shape, ","), offset,
                          offset + tensor->size_bytes());
    offset += tensor->size_bytes();
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  const auto data_begin = static_cast<int64_t>(8 + header.size());
  int64_t at = data_begin;
  for (const PlannedTensor* tensor : tensors) {
    const bool is_new =
        places_.try_emplace(tensor->name, Place{files_.size(), at, tensor->size_bytes(), 0}).second;
    CHECK(is_new, "tensor {} is planned twice", tensor->name);
    at += tensor->size_bytes();
  }
  const std::filesystem::path path = folder_ / name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return tl::unexpected<Error>(SystemError(path, "create"));
  files_.push_back(file);
  names_.push_back(name);
  // Reserves the space, so that a full disk is detected now and not after an hour.
  if (const int code = ::posix_fallocate(file, 0, data_begin + offset); code != 0) {
    errno = code;
    return tl::unexpected<Error>(SystemError(path, "reserve space"));
  }
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  RETURN_IF_ERROR(WriteAll(file, path, BytesOf(length + header), 0));
  total_bytes_ += offset;
  return {};
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::filesystem::path& folder,
                                                    std::vector<PlannedTensor> tensors,
                                                    int64_t max_file_bytes) {
  std::vector<std::vector<const PlannedTensor*>> files(1);
  int64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors) {
    if (bytes > 0 && bytes + tensor.size_bytes() > max_file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(&tensor);
    bytes += tensor.size_bytes();
  }
  SafetensorsWriter writer;
  writer.folder_ = folder;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name =
        files.size() == 1 ? "model.safetensors"
                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    RETURN_IF_ERROR(writer.CreateFile(name, std::move(files[i])));
  }
  return writer;
}

Status SafetensorsWriter::Write(const std::string& tensor, int64_t offset,
                                std::span<const std::byte> bytes) {
  const auto found = places_.find(tensor);
  CHECK(found != places_.end(), "tensor {} was not planned", tensor);
  Place& place = found->second;
  CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= place.size,
        "tensor {}: {} bytes at {} of {}", tensor, bytes.size(), offset, place.size);
  place.written += static_cast<int64_t>(bytes.size());
  return WriteAll(files_[place.file], folder_ / names_[place.file], bytes, place.offset + offset);
}

Status SafetensorsWriter::Finish() {
  for (const auto& [name, place] : places_)
    CHECK(place.written == place.size, "tensor {}: {} of {} bytes written", name, place.written,
          place.size);
  for (size_t i = 0; i < files_.size(); ++i) {
    if (::fsync(files_[i]) != 0)
      return tl::unexpected<Error>(SystemError(folder_ / names_[i], "write to disk"));
  }
  if (files_.size() == 1) return {};
  json::Value map{json::Value::Object{}};
  for (const auto& [name, place] : places_)
    map.as_object().emplace_back(name, json::Value(names_[place.file]));
  json::Value metadata{json::Value::Object{}};
  metadata.Set("total_size", total_bytes_);
  json::Value index{json::Value::Object{}};
  index.Set("metadata", std::move(metadata));
  index.Set("weight_map", std::move(map));
  const std::filesystem::path path = folder_ / "model.safetensors.index.json";
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return tl::unexpected<Error>(SystemError(path, "create"));
  Status status = WriteAll(file, path, BytesOf(json::Write(index)), 0);
  if (status && ::fsync(file) != 0)
    status = tl::unexpected<Error>(SystemError(path, "write to disk"));
  ::close(file);
  return status;
}

}  // namespace sluice
