#include "cli/text_chunks.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json_lines.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

std::string StringOf(const json::Value& object, std::string_view key) {
  const json::Value* value = object.Find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

// Returns the text of one line; "" if it has none.
std::string TextOf(const json::Value& line) {
  if (line.is_string()) return line.as_string();
  for (const char* key : {"text", "prompt", "question", "content"}) {
    std::string text = StringOf(line, key);
    if (text.empty()) continue;
    // A question and its answer form one text.
    const std::string answer = StringOf(line, "answer");
    return answer.empty() ? text : text + "\n" + answer;
  }
  std::string text;
  const json::Value* messages = line.Find("messages");
  if (messages == nullptr || !messages->is_array()) return text;
  for (const json::Value& message : messages->as_array())
    text += StringOf(message, "content") + "\n";
  return text;
}

Result<std::vector<std::string>> ReadDocuments(const std::filesystem::path& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxTextBytes));
  const std::string extension = file.extension().string();
  if (extension != ".jsonl" && extension != ".json") return std::vector<std::string>{text};
  std::vector<std::string> documents;
  const auto take = [&](const json::Value& line, int64_t) -> Status {
    std::string document = TextOf(line);
    if (document.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "expected an object with \"text\", \"prompt\", \"question\" or \"messages\"",
                  file.string());
    }
    documents.push_back(std::move(document));
    return {};
  };
  RETURN_IF_ERROR(json::ForEachLine(text, file.string(), {}, take));
  return documents;
}

}  // namespace

Result<std::vector<std::vector<int32_t>>> ReadTextChunks(
    const std::filesystem::path& file, const std::filesystem::path& tokenizer_folder,
    int64_t chunk_tokens, int64_t max_tokens) {
  ASSIGN_OR_RETURN(const std::vector<std::string> documents, ReadDocuments(file));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::Load(tokenizer_folder));
  std::vector<std::vector<int32_t>> chunks;
  int64_t left = max_tokens;
  for (const std::string& document : documents) {
    const std::vector<int32_t> ids = tokenizer->Encode(document, /*add_special_tokens=*/true);
    for (size_t begin = 0; begin < ids.size() && left >= 2;
         begin += static_cast<size_t>(chunk_tokens)) {
      const size_t size = std::min(
          {ids.size() - begin, static_cast<size_t>(chunk_tokens), static_cast<size_t>(left)});
      if (size < 2) continue;
      chunks.emplace_back(ids.begin() + static_cast<ptrdiff_t>(begin),
                          ids.begin() + static_cast<ptrdiff_t>(begin + size));
      left -= static_cast<int64_t>(size);
    }
  }
  if (chunks.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} has no text of two tokens or more", file.string()), file.string());
  }
  return chunks;
}

}  // namespace sluice::cli
