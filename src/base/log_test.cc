#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LogTest, AMessageIsOneLine) {
  testing::internal::CaptureStderr();
  LOG_INFO("server", "request {} was\taborted", "a\nb\r\x1b[31m\x7f\u00E9");
  const std::string written = testing::internal::GetCapturedStderr();
  EXPECT_THAT(written, testing::EndsWith(
                           " INFO server request a\\nb\\x0d\\x1b[31m\\x7f\u00E9 was\taborted\n"));
}

}  // namespace
}  // namespace sluice
