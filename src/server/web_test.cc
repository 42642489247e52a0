// The page at /, and its response headers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_testing.h"
#include "server/web/web_files.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
const auto kHasPageHeaders =
    AllOf(HasSubstr("content-security-policy: default-src 'none'; script-src 'self'; "),
          HasSubstr("x-content-type-options: nosniff\r\n"),
          HasSubstr("referrer-policy: no-referrer\r\n"));

class WebTest : public ServerTest {};

TEST_F(WebTest, BrowsersGetThePageAndProgramsWhatTheyAlwaysGot) {
  for (const ApiDialect dialect : {ApiDialect::kSluice, ApiDialect::kVllm, ApiDialect::kTrtllm}) {
    ServerConfig config = DefaultConfig();
    config.dialect = dialect;
    Start(config);
    const ServerAnswer page = Ask("GET", "/", "", kBrowser);
    EXPECT_EQ(page.status, 200);
    EXPECT_THAT(page.head, kHasPageHeaders);
    EXPECT_THAT(page.head, AllOf(HasSubstr("content-type: text/html; charset=utf-8\r\n"),
                                 HasSubstr("vary: Accept\r\n")));
    EXPECT_THAT(page.body, StartsWith("<!DOCTYPE html>"));
    EXPECT_EQ(Ask("HEAD", "/", "", kBrowser).status, 200);
    for (const char* accept : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
      const ServerAnswer answer = Ask("GET", "/", "", accept);
      EXPECT_EQ(answer.status, 404);
      EXPECT_EQ(answer.body, R"({"detail":"Not Found"})");
    }
  }
}

TEST_F(WebTest, ThePageIsThereBeforeTheModel) {
  Start(DefaultConfig(), /*attach=*/false);
  EXPECT_EQ(Ask("GET", "/", "", kBrowser).status, 200);
  EXPECT_EQ(Ask("GET", "/web/main.js").status, 200);
}

TEST_F(WebTest, AFileIsSentOnce) {
  Start();
  ASSERT_FALSE(WebFiles().empty());
  for (const WebFile& file : WebFiles()) {
    if (file.name.ends_with(".html")) continue;
    const std::string path = "/web/" + std::string(file.name);
    const ServerAnswer answer = Ask("GET", path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.body, file.content);
    EXPECT_THAT(answer.head, kHasPageHeaders);
    EXPECT_THAT(answer.head,
                AllOf(HasSubstr("etag: " + std::string(file.etag) + "\r\n"),
                      HasSubstr("cache-control: no-cache\r\n"),
                      HasSubstr("content-type: " + std::string(file.content_type) + "\r\n")));
    const ServerAnswer again =
        Ask("GET", path, "", "If-None-Match: \"other\", W/" + std::string(file.etag) + "\r\n");
    EXPECT_EQ(again.status, 304) << path;
    EXPECT_EQ(again.body, "");
    EXPECT_THAT(again.head, AllOf(Not(HasSubstr("content-length")), HasSubstr("etag: ")));
    EXPECT_EQ(Ask("GET", path, "", "If-None-Match: \"other\"\r\n").status, 200);
  }
}

TEST_F(WebTest, OnlyItsFilesAreServed) {
  Start();
  for (const char* path : {"/web", "/web/", "/web/nope.js", "/web/index.html", "/web/a/main.js",
                           "/web/../main.js", "/web/%2e%2e/main.js", "/docs/../web/main.js"}) {
    EXPECT_EQ(Ask("GET", path).status, 404) << path;
  }
  EXPECT_EQ(Ask("POST", "/web/main.js", "{}").status, 405);
}

TEST_F(WebTest, DisabledItLeavesNothing) {
  ServerConfig config = DefaultConfig();
  config.enable_web = false;
  Start(config);
  for (const char* path : {"/", "/web/main.js"}) {
    const ServerAnswer answer = Ask("GET", path, "", kBrowser);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.body, R"({"detail":"Not Found"})");
  }
  EXPECT_EQ(Ask("GET", "/docs/docs.js").status, 200);
  config.enable_web = true;
  config.enable_docs = false;
  Start(config);
  EXPECT_EQ(Ask("GET", "/docs/docs.js").status, 404);
  EXPECT_EQ(Ask("GET", "/web/main.js").status, 200);
}

TEST_F(WebTest, AKeyIsAskedForByThePage) {
  ServerConfig config = DefaultConfig();
  config.api_keys = {"sk-bead-0001"};
  Start(config);
  EXPECT_EQ(Ask("GET", "/", "", kBrowser).status, 200);
  EXPECT_EQ(Ask("GET", "/v1/models").status, 401);
  config.protect_all = true;
  Start(config);
  EXPECT_EQ(Ask("GET", "/", "", kBrowser).status, 401);
}

TEST_F(WebTest, BehindAPrefix) {
  ServerConfig config = DefaultConfig();
  config.root_path = "/llm";
  Start(config);
  EXPECT_EQ(Ask("GET", "/llm/", "", kBrowser).status, 200);
  EXPECT_EQ(Ask("GET", "/llm/web/main.js").status, 200);
  // No link in the pages begins at the root of the server.
  for (const std::string& page : {Ask("GET", "/", "", kBrowser).body, Ask("GET", "/docs").body}) {
    EXPECT_THAT(page,
                AllOf(Not(HasSubstr("src=\"/")), Not(HasSubstr("href=\"/")), HasSubstr("src=\"")));
  }
}

TEST_F(WebTest, TheDocsHaveThePolicyToo) {
  Start();
  const ServerAnswer docs = Ask("GET", "/docs");
  EXPECT_THAT(docs.head, kHasPageHeaders);
  EXPECT_THAT(docs.body, AllOf(Not(HasSubstr("<style")), Not(HasSubstr("<script>")),
                               HasSubstr("data-path=\"/v1/completions\" data-methods=\"POST\"")));
}

}  // namespace
}  // namespace sluice
