#include "media/media_address.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "media/media_fetcher.h"

namespace sluice {
namespace {

TEST(MediaAddressTest, ReadsSchemes) {
  EXPECT_EQ(MediaSchemeOf("DATA:image/png;base64,").value(), MediaScheme::kData);
  EXPECT_EQ(MediaSchemeOf("https://host/a").value(), MediaScheme::kHttp);
  EXPECT_EQ(MediaSchemeOf("file:///a").value(), MediaScheme::kFile);
  EXPECT_FALSE(MediaSchemeOf("ftp://host/a"));
  EXPECT_FALSE(MediaSchemeOf("a.png"));
  EXPECT_FALSE(MediaSchemeOf(""));
}

TEST(MediaAddressTest, ReadsDataUrls) {
  EXPECT_EQ(ReadDataUrl("data:image/png;base64,Zm9v").value(), "foo");
  EXPECT_EQ(ReadDataUrl("data:;base64,Zm9v").value(), "foo");
  EXPECT_FALSE(ReadDataUrl("data:image/png,foo"));
  EXPECT_FALSE(ReadDataUrl("data:image/png;base64"));
}

class LocalMediaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "local_media";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "in");
    std::ofstream(folder_ / "in/a b.png") << "inside";
    std::ofstream(folder_ / "secret") << "outside";
    std::filesystem::create_symlink(folder_ / "secret", folder_ / "in/link");
    std::filesystem::create_directories(folder_ / "input");
    std::ofstream(folder_ / "input/c") << "beside";
  }
  Result<std::string> ReadIn(const std::string& path) {
    return ReadLocalMedia("file://" + path, folder_ / "in", 100);
  }

  std::filesystem::path folder_;
};

TEST_F(LocalMediaTest, ReadsBelowTheFolderOnly) {
  const std::string in = (folder_ / "in").string();
  EXPECT_EQ(ReadIn(in + "/a%20b.png").value(), "inside");
  EXPECT_EQ(ReadIn(in + "/../in/a b.png").value(), "inside");
  EXPECT_FALSE(ReadIn(in + "/../secret"));
  EXPECT_FALSE(ReadIn(in + "/%2e%2e/secret"));
  EXPECT_FALSE(ReadIn(in + "/link"));
  EXPECT_FALSE(ReadIn(folder_.string() + "/input/c"));
  EXPECT_FALSE(ReadIn(in + "/none"));
  EXPECT_FALSE(ReadIn(in));
  EXPECT_FALSE(ReadIn(in + "/a%00"));
  EXPECT_FALSE(ReadLocalMedia("file://" + in + "/a%20b.png", folder_ / "in", 3));
  EXPECT_FALSE(ReadLocalMedia("file://" + in + "/a%20b.png", "", 100));
}

TEST(PublicAddressTest, TellsPrivateOnes) {
  for (const char* address : {"8.8.8.8", "172.32.0.1", "192.169.0.1", "2606:4700::1111",
                              "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"})
    EXPECT_TRUE(IsPublicAddress(address)) << address;
  for (const char* address : {"127.0.0.1",
                              "127.9.9.9",
                              "10.0.0.1",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.168.1.1",
                              "169.254.169.254",
                              "100.64.0.1",
                              "0.0.0.0",
                              "224.0.0.1",
                              "255.255.255.255",
                              "198.18.0.1",
                              "::1",
                              "::",
                              "fe80::1",
                              "fc00::1",
                              "fd12::1",
                              "ff02::1",
                              "::ffff:127.0.0.1",
                              "::ffff:10.0.0.1",
                              "64:ff9b::a00:1",
                              "2002:7f00:1::",
                              "2001:db8::1",
                              "2001::1",
                              "::7f00:1",
                              "host",
                              ""})
    EXPECT_FALSE(IsPublicAddress(address)) << address;
}

}  // namespace
}  // namespace sluice
