#include "receipt/receipt.h"

#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

class ReceiptFolder : public ::testing::Test {
 protected:
  ReceiptFolder() {
    std::string name = ::testing::TempDir() + "receiptXXXXXX";
    folder_ = mkdtemp(name.data());
    EXPECT_TRUE(MakeKeyPair(folder_ / "key"));
  }
  ~ReceiptFolder() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

Receipt Example() {
  Receipt receipt;
  receipt.id = "chatcmpl-1";
  receipt.model = "m";
  receipt.created = 1'700'000'000;
  receipt.program = "sluice 0.1.0";
  receipt.weights = "sha256:00";
  receipt.profile.Set("isa", "amx");
  receipt.end_tokens = {2};
  ReceiptPrompt& prompt = receipt.prompts.emplace_back();
  prompt.num_tokens = 3;
  prompt.token_ids = {1, 2, 3};
  prompt.sha256 = TokensSha256(prompt.token_ids);
  prompt.sampling.temperature = 0.7;
  prompt.sampling.seed = (int64_t{1} << 62) + 1;
  prompt.sampling.logit_bias = {{3, -1.5f}};
  prompt.sampling.bad_words = {{4, 5}};
  prompt.sampling.allowed_token_ids = SharedList<int32_t>{7, 8};
  ReceiptChoice& choice = receipt.choices.emplace_back();
  choice.finish_reason = "stop";
  choice.num_tokens = 2;
  choice.sha256 = TokensSha256(std::vector<int32_t>{9, 2});
  return receipt;
}

TEST_F(ReceiptFolder, SurvivesOtherSpellings) {
  const auto key = SigningKey::LoadPrivate(folder_ / "key");
  ASSERT_TRUE(key) << key.error().message;
  const json::Value value = SignedReceipt(Example(), *key);
  // Members in another order, and numbers as JavaScript writes them.
  std::string text = json::Write(value);
  const auto replace = [&](std::string_view from, std::string_view to) {
    const size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    text.replace(place, from.size(), to);
  };
  replace(R"("top_p":1.0)", R"("top_p":1)");
  replace(R"("version":1,"id":"chatcmpl-1")", R"("id":"chatcmpl-1","version":1)");
  const auto read = ParseReceipt(*json::Parse(R"({"choices":[],"receipt":)" + text + "}"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->public_key, key->public_hex());
  const auto open = SigningKey::LoadPublic(folder_ / "key.pub");
  ASSERT_TRUE(open);
  EXPECT_TRUE(open->Verify(read->text, read->signature));
  const SamplingParams& sampling = read->receipt.prompts[0].sampling;
  EXPECT_EQ(sampling.seed, (int64_t{1} << 62) + 1);
  EXPECT_EQ(sampling.temperature, 0.7);
  ASSERT_EQ(sampling.logit_bias.size(), 1u);
  EXPECT_EQ(sampling.logit_bias[0].second, -1.5f);
  ASSERT_EQ(sampling.bad_words.size(), 1u);
  ASSERT_TRUE(sampling.allowed_token_ids);
  EXPECT_EQ(sampling.allowed_token_ids->size(), 2u);
}

TEST_F(ReceiptFolder, NoticesEveryChange) {
  const auto key = SigningKey::LoadPrivate(folder_ / "key");
  const std::string text = json::Write(SignedReceipt(Example(), *key));
  int num_read = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '3' ? '4' : '3';
    const auto value = json::Parse(changed);
    if (!value) continue;
    const auto read = ParseReceipt(*value);
    if (!read) continue;
    ++num_read;
    // Leading zeros of a number and similar spellings have the same meaning.
    if (read->text == ParseReceipt(*json::Parse(text))->text &&
        read->signature == ParseReceipt(*json::Parse(text))->signature)
      continue;
    EXPECT_FALSE(key->Verify(read->text, read->signature)) << changed;
  }
  EXPECT_GT(num_read, 100);
}

TEST_F(ReceiptFolder, KeepsKeysSafe) {
  struct stat status {};
  ASSERT_EQ(stat((folder_ / "key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const Status again = MakeKeyPair(folder_ / "key");
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("exists"));
  const auto open = SigningKey::LoadPrivate(folder_ / "key.pub");
  EXPECT_FALSE(open);
  ASSERT_EQ(chmod((folder_ / "key").c_str(), 0644), 0);
  const auto loose = SigningKey::LoadPrivate(folder_ / "key");
  ASSERT_FALSE(loose);
  EXPECT_THAT(loose.error().message, HasSubstr("chmod 600"));
}

TEST_F(ReceiptFolder, RefusesNumbersThatAreNoTokenIds) {
  const auto key = SigningKey::LoadPrivate(folder_ / "key");
  ASSERT_TRUE(key) << key.error().message;
  const std::string text = json::Write(SignedReceipt(Example(), *key));
  for (const auto& [from, to, name] :
       {std::array{"[[3,-1.5]]", "[[4294967299,-1.5]]", "sampling.logit_bias"},
        std::array{"[[4,5]]", "[[4,-5]]", "sampling.bad_words"}}) {
    std::string changed = text;
    const size_t place = changed.find(from);
    ASSERT_NE(place, std::string::npos) << from << " in " << text;
    const auto read = ParseReceipt(*json::Parse(changed.replace(place, strlen(from), to)));
    ASSERT_FALSE(read) << to;
    EXPECT_THAT(read.error().message, HasSubstr(name));
  }
}

TEST(ReceiptTest, NamesWhatIsMissing) {
  const auto read = ParseReceipt(*json::Parse(R"({"version":1})"));
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("receipt.signature"));
  const auto other = ParseReceipt(*json::Parse(R"({"version":2})"));
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("expected 1, found 2"));
}

}  // namespace
}  // namespace sluice
