#include "server/log_secrets.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LogSecretsTest, HidesWhatIsNamedASecret) {
  const auto shown = [](std::string_view target) { return WithoutSecrets(target, ApiKeys()); };
  EXPECT_EQ(shown("/v1/models?api_key=abc"), "/v1/models?api_key=***");
  EXPECT_EQ(shown("/v1/models?a=1&key=abc&b=2"), "/v1/models?a=1&key=***&b=2");
  EXPECT_EQ(shown("/?X-API-Key=a&access_token=b&Password=c&%61uth=d"),
            "/?X-API-Key=***&access_token=***&Password=***&%61uth=***");
  for (const char* plain :
       {"/v1/models", "*", "", "/?", "/?&&", "/?a", "/?a=", "/?=a", "/pause?mode=abort&b",
        "/v1/keys/my-key-is-not-known-here", "/?max_tokens=5"}) {
    EXPECT_EQ(shown(plain), plain);
  }
}

TEST(LogSecretsTest, HidesKeysOfTheServerWhereverTheyStand) {
  const ApiKeys keys({"", "sk-bead-0001", "a&b=c/d?e%f+g", "k"});
  const auto shown = [&](std::string_view target) { return WithoutSecrets(target, keys); };
  EXPECT_EQ(shown("/v1/models?x=sk-bead-0001"), "/v1/models?x=***");
  EXPECT_EQ(shown("/v1/models?x=Bearer%20sk-bead-0001&y=1"), "/v1/models?x=***&y=1");
  EXPECT_EQ(shown("/v1/models?x=%73k%2Dbead-0001"), "/v1/models?x=***");
  EXPECT_EQ(shown("/v1/models?sk-bead-0001"), "/v1/models?***");
  EXPECT_EQ(shown("/v1/models?sk-bead-0001=1"), "/v1/models?***");
  EXPECT_EQ(shown("/sk-bead-0001/models?a=1"), "/***?a=1");
  EXPECT_EQ(shown("http://sk-bead-0001@host/v1/models"), "/***");
  EXPECT_EQ(shown("/v1/models?x=a&b=c/d?e%f+g"), "/***");
  EXPECT_EQ(shown("/v1/models?x=a%26b%3dc%2Fd%3Fe%25f%2Bg"), "/v1/models?x=***");
  EXPECT_EQ(shown("/tokenize?x=k&y=ok"), "/tokenize?x=***&y=ok") << "a short key";
}

}  // namespace
}  // namespace sluice
