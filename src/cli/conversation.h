// The messages of a chat in the API's format.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "client/openai_client.h"

namespace sluice::cli {

class Conversation {
 public:
  void Add(std::string_view role, std::string_view content);
  // Adds a question with images (data: URLs), which precede the text.
  void Add(std::string_view question, const std::vector<std::string>& images);
  // Adds the answer in the form in which the next request must repeat it.
  void Add(const AnswerEnd& answer);
  // Removes the last message. REQUIRES: there is one.
  void TakeBack() { messages_.pop_back(); }
  // Removes all messages except a leading system message.
  void Clear();
  // Sets the leading system message; "" removes it.
  void SetSystem(std::string_view content);
  std::string System() const;

  size_t size() const { return messages_.size(); }
  json::Value ToJson() const { return json::Value(messages_); }

  // Writes {"messages": [...]}, which is a body for /v1/chat/completions except for the key
  // "model". Replaces an existing file.
  Status Save(const std::filesystem::path& file) const;
  // Replaces the messages by those in a file that Save() wrote, or by a list of messages. Changes
  // nothing on failure.
  Status Load(const std::filesystem::path& file);

 private:
  json::Value::Array messages_;
};

}  // namespace sluice::cli
