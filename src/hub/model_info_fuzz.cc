// Fuzz target: parses arbitrary answers of a hub. No file name may lead outside a folder.
#include "base/fuzz_input.h"
#include "hub/model_files.h"
#include "hub/model_info.h"
#include "hub/model_reference.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;  // NOLINT: a program of one file
  const std::string_view text = fuzz::Text(data, size);
  if (const auto info = ParseModelInfo(text)) {
    fuzz::Require(IsCommit(info->commit));
    for (const std::string& file : ChooseFiles(info->files, ModelPart::kAll))
      fuzz::Require(file.front() != '/' && file.find("..") == std::string::npos);
    UnindexedWeights(info->files);
  }
  for (const std::string& id : ParseModelList(text)) fuzz::Require(IsHubId(id));
  if (const auto shards = ShardsOfIndex(text)) {
    for (const std::string& shard : *shards)
      fuzz::Require(shard.find('/') == std::string::npos && shard != "..");
  }
  const size_t half = size / 2;
  if (const auto file = ParseFileInfo(text.substr(0, half), text.substr(half)))
    fuzz::Require(file->size >= 0 && file->etag.find('/') == std::string::npos);
  if (const auto reference = ParseModelAddress(text, "https://hub.example"))
    fuzz::Require(IsHubId(reference->id));
  return 0;
}
