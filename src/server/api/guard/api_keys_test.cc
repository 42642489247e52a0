#include "server/api/guard/api_keys.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

// SHA-256 of "sk-bead-0002".
constexpr const char* kHashOfSecond =
    "sha256:c607f0f6714010dd9ba60825f74884ee0d6de75e4766cb91674e4ef332959298";

class ApiKeysTest : public ::testing::Test {
 protected:
  ~ApiKeysTest() override { std::filesystem::remove(file_); }

  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(file_) << text;
    EXPECT_EQ(chmod(file_.c_str(), mode), 0);
  }
  // Returns the error message for a file of `text`; "" if it is accepted.
  std::string Refusal(const std::string& text) {
    Write(text);
    auto keys = ApiKeys::Load({}, file_);
    return keys ? "" : keys.error().message;
  }

  const std::string file_ = ::testing::TempDir() + "api_keys_test.txt";
};

TEST_F(ApiKeysTest, KnowsWhatItWasGiven) {
  const ApiKeys keys({"", "sk-bead-0001", "k"});
  EXPECT_TRUE(keys.Knows("sk-bead-0001"));
  EXPECT_TRUE(keys.Knows("k"));
  for (const char* other : {"", "sk-bead-000", "sk-bead-00011", "SK-BEAD-0001", "K"})
    EXPECT_FALSE(keys.Knows(other)) << other;
  EXPECT_FALSE(ApiKeys().Knows(""));
}

TEST_F(ApiKeysTest, FindsKeysInTexts) {
  Write(fmt::format("sk-bead-0001\n{}\nshort\n", kHashOfSecond));
  const auto keys = ApiKeys::Load({"from-the-line"}, file_);
  ASSERT_TRUE(keys) << keys.error().message;
  for (const char* text : {"sk-bead-0001", "Bearer sk-bead-0001", "sk-bead-0001x", "sk-bead-0002",
                           "short", "(from-the-line)"})
    EXPECT_TRUE((*keys)->FoundIn(text)) << text;
  for (const char* text : {"", "sk-bead-000", "shorter", "sk-bead-0003", "x sk-bead-0002"})
    EXPECT_FALSE((*keys)->FoundIn(text)) << text;
}

TEST_F(ApiKeysTest, ReadsAFile) {
  Write(fmt::format("# of the first team\r\n\r\n  sk-bead-0001\t\r\n{}", kHashOfSecond));
  ::testing::internal::CaptureStderr();
  const auto keys = ApiKeys::Load({"sk-bead-0003"}, file_);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(keys) << keys.error().message;
  for (const char* key : {"sk-bead-0001", "sk-bead-0002", "sk-bead-0003"})
    EXPECT_TRUE((*keys)->Knows(key)) << key;
  EXPECT_FALSE((*keys)->Knows("# of the first team"));
  EXPECT_FALSE((*keys)->Knows(kHashOfSecond)) << "the hash itself is no key";
}

TEST_F(ApiKeysTest, RefusesByTheLine) {
  const std::string head = fmt::format("--api-key-file {}: ", file_);
  EXPECT_EQ(Refusal("one\ntwo words\n").find(head + "line 2: expected one key"), 0u);
  EXPECT_THAT(Refusal("one\n\n" + std::string(513, 'k')),
              HasSubstr("line 3: expected a key of at most 512"));
  EXPECT_THAT(Refusal("sha256:12"), HasSubstr("line 1: expected 64 hexadecimal digits"));
  EXPECT_THAT(Refusal("sha256:" + std::string(64, 'g')), HasSubstr("line 1: expected 64"));
  EXPECT_THAT(Refusal("k\xc3\xa9y"), HasSubstr("line 1: expected one key"));
  EXPECT_THAT(Refusal("# none\n\n"), HasSubstr("at least one key"));
  EXPECT_THAT(Refusal(""), HasSubstr("at least one key"));
  std::string many;
  for (int i = 0; i < 10001; ++i) many += fmt::format("key-{}\n", i);
  EXPECT_THAT(Refusal(many), HasSubstr("line 10001: expected at most 10000 keys"));
  EXPECT_THAT(Refusal(std::string(kMaxApiKeyFileBytes + 1, '\n')), HasSubstr(head));
  std::filesystem::remove(file_);
  EXPECT_THAT(ApiKeys::Load({}, file_).error().message, HasSubstr(head));
  EXPECT_EQ(ApiKeys::Load({}, file_).error().param, "api-key-file");
  // The error does not quote the refused text.
  EXPECT_THAT(Refusal("a secret"), ::testing::Not(HasSubstr("secret")));
}

TEST_F(ApiKeysTest, WarnsOfAFileThatOthersMayRead) {
  Write("sk-bead-0001\n", 0644);
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(ApiKeys::Load({}, file_));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(" WARN http --api-key-file " + file_ + ": every user"));
  EXPECT_THAT(log, HasSubstr("mode 0644"));
}

TEST_F(ApiKeysTest, ReloadsWhatCanBeUsed) {
  Write("sk-bead-0001\n");
  const auto keys = ApiKeys::Load({"fixed"}, file_);
  ASSERT_TRUE(keys);
  Write("sk-bead-0002\n");
  ::testing::internal::CaptureStderr();
  (*keys)->Reload();
  EXPECT_FALSE((*keys)->Knows("sk-bead-0001"));
  EXPECT_TRUE((*keys)->Knows("sk-bead-0002"));
  for (const char* bad : {"two words", "", "# all gone"}) {
    Write(bad);
    (*keys)->Reload();
    EXPECT_TRUE((*keys)->Knows("sk-bead-0002")) << bad;
  }
  EXPECT_TRUE((*keys)->Knows("fixed"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("one of the 1 API keys that --api-key-file " + file_));
  EXPECT_THAT(
      log,
      HasSubstr(
          " ERROR http reloading the API keys failed; the old keys stay valid: --api-key-file " +
          file_ + ": line 1"));
}

}  // namespace
}  // namespace sluice
