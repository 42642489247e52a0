// Test helpers that write safetensors files.
#pragma once

#include <unistd.h>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

namespace sluice::testing {

// The bytes of a file with this header and this data.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes + header + data;
}

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data = {};
};

// The bytes of a well-formed file with these tensors in this order.
inline std::string MakeSafetensors(const std::vector<TestTensor>& tensors) {
  std::string header = "{", data;
  for (const TestTensor& tensor : tensors) {
    header +=
        fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                    header.size() > 1 ? "," : "", tensor.name, tensor.dtype,
                    fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.data.size());
    data += tensor.data;
  }
  return SafetensorsBytes(header + "}", data);
}

inline void WriteFile(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// An empty folder for the running test, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name =
        fmt::format("sluice_{}_{}_{}", test->test_suite_name(), test->name(), getpid());
    for (char& c : name) c = c == '/' ? '_' : c;
    path_ = std::filesystem::path(::testing::TempDir()) / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sluice::testing
