// For tests: the images of tests/data/vision/images.jsonl, which tools/vision/make_images.py
// writes.
#pragma once

#include <string>
#include <vector>

#include "base/base64.h"
#include "base/file.h"
#include "base/json.h"
#include "base/source_path_testing.h"

namespace sluice {

struct TestImage {
  std::string name;   // "rgb.png"
  std::string bytes;  // contents of the file
  json::Value row;    // other data about the image
};

inline std::vector<TestImage> ReadTestImages() {
  const std::string text = ReadFile(SourcePath("tests/data/vision/images.jsonl")).value();
  std::vector<TestImage> images;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    json::Value row = json::Parse(text.substr(at, end - at)).value();
    images.push_back({row.Find("name")->as_string(),
                      DecodeBase64(row.Find("base64")->as_string()).value(), row});
    at = end + 1;
  }
  return images;
}

}  // namespace sluice
