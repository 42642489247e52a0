#include "cli/reload.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "options/sources.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ReloadTest : public ::testing::Test {
 protected:
  ~ReloadTest() override {
    SetLogLevel(LogLevel::kInfo);
    std::filesystem::remove(file_);
  }

  void Write(const std::string& text) { std::ofstream(file_) << text; }
  options::Settings Start(std::vector<std::string> flags,
                          const std::map<std::string, std::string>& environment = {}) {
    flags.insert(flags.end(), {"--config", file_});
    auto resolved =
        options::Resolve(flags, environment, options::kServe, options::Dialect::kSluice);
    EXPECT_TRUE(resolved) << resolved.error().message;
    UseLogLevelOf(resolved->settings);
    return resolved->settings;
  }
  static std::string LogOfReload(const options::Settings& settings) {
    ::testing::internal::CaptureStderr();
    ReloadLogLevel(settings);
    return ::testing::internal::GetCapturedStderr();
  }

  const std::string file_ = ::testing::TempDir() + "reload_test.yaml";
};

TEST_F(ReloadTest, TakesTheLogLevelOfTheFile) {
  Write("log-level: warning\nport: 80\n");
  const options::Settings settings = Start({});
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  Write("log-level: debug\nport: 80\n");
  EXPECT_THAT(LogOfReload(settings),
              AllOf(HasSubstr("the log level is debug"), ::testing::Not(HasSubstr(" WARN "))));
  EXPECT_TRUE(LogEnabled(LogLevel::kDebug));
  Write("port: 80\n");
  LogOfReload(settings);
  EXPECT_FALSE(LogEnabled(LogLevel::kDebug));
  EXPECT_TRUE(LogEnabled(LogLevel::kInfo)) << "the default, where the file says nothing any more";
}

TEST_F(ReloadTest, FlagsAndVariablesCountForMore) {
  Write("");
  const options::Settings flag = Start({"--log-level", "error"});
  Write("log-level: debug\n");
  LogOfReload(flag);
  EXPECT_FALSE(LogEnabled(LogLevel::kWarning));
  Write("");
  const options::Settings variable = Start({}, {{"SLUICE_LOG_LEVEL", "warning"}});
  Write("log-level: debug\n");
  LogOfReload(variable);
  EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
}

TEST_F(ReloadTest, TellsOfWhatNeedsARestart) {
  Write("port: 80\nmax-num-seqs: 4\nhost: a\nlog-level: info\n");
  const options::Settings settings = Start({});
  Write("port: 81\nhost: a\nuds: x\nlog-level: debug\n");
  EXPECT_THAT(LogOfReload(settings),
              HasSubstr(" WARN serve --config " + file_ +
                        ": the new values of max-num-seqs, port, uds take effect at the next"));
}

TEST_F(ReloadTest, KeepsTheLevelWhereTheFileCannotBeUsed) {
  Write("log-level: warning\n");
  const options::Settings settings = Start({});
  for (const char* bad : {"log-level: loud\n", "nonsense: 1\n", "{"}) {
    Write(bad);
    EXPECT_THAT(
        LogOfReload(settings),
        AllOf(HasSubstr(
                  " ERROR serve reloading the configuration failed; the log level is unchanged: "),
              HasSubstr(file_)))
        << bad;
    EXPECT_TRUE(LogEnabled(LogLevel::kWarning));
    EXPECT_FALSE(LogEnabled(LogLevel::kInfo));
  }
}

}  // namespace
}  // namespace sluice::cli
