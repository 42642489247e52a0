#include "server/api/response_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <fmt/format.h>

#include "server/api/response_store.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ResponseDatabaseTest : public ::testing::Test {
 protected:
  ResponseDatabaseTest()
      : folder_(fs::path(::testing::TempDir()) / fmt::format("response-database-{}", getpid())) {
    fs::remove_all(folder_);
  }
  ~ResponseDatabaseTest() override { fs::remove_all(folder_); }

  static std::shared_ptr<StoredResponse> Make(const std::string& id, bool is_over = true,
                                              uint64_t owner = 0, size_t size = 10) {
    StoredResponse::Content content;
    content.id = id;
    content.owner = owner;
    content.messages = R"([{"role":"user","content":"h\u00e9"}])";
    content.input_items = "[]";
    content.body = R"({"id":")" + id + R"(","status":"queued","text":")" + std::string(size, 'x') +
                   R"(","output":[]})";
    content.item_ids = {"item-of-" + id};
    return std::make_shared<StoredResponse>(std::move(content), is_over);
  }
  fs::path file() const { return folder_ / "responses.sqlite"; }
  std::string ErrorOfOpen() {
    ResponseStore store(1 << 20);
    const Status status = store.KeepIn(folder_);
    return status ? "" : status.error().message;
  }
  // Runs `sql` in the file, which nobody has open.
  void Change(const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  // The ids in the file.
  std::vector<std::string> Ids() {
    std::vector<std::string> ids;
    const auto opened = ResponseDatabase::Open(folder_);
    EXPECT_TRUE(opened);
    const Status read =
        (*opened)->Read([&](StoredResponse::Content content, bool) { ids.push_back(content.id); });
    EXPECT_TRUE(read);
    return ids;
  }

  const fs::path folder_;
};

TEST_F(ResponseDatabaseTest, KeepsWhatIsStored) {
  uint64_t owner = 0;
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    owner = store.OwnerOf("a key");
    ASSERT_EQ(store.Add(Make("a")), ResponseStore::Added::kYes);
    ASSERT_EQ(store.Add(Make("b", true, owner)), ResponseStore::Added::kYes);
    ASSERT_EQ(store.Add(Make("c")), ResponseStore::Added::kYes);
    ASSERT_EQ(store.Add(Make("a", true, 0, 20)), ResponseStore::Added::kYes);  // replaces the first
    store.Remove(*store.Find("c", 0));
  }
  ResponseStore store(1 << 20);
  ASSERT_TRUE(store.KeepIn(folder_));
  EXPECT_EQ(store.size(), 2u);
  EXPECT_EQ(store.OwnerOf("a key"), owner);
  EXPECT_NE(store.OwnerOf("another"), owner);
  EXPECT_EQ(store.Find("a", 0)->body(), Make("a", true, 0, 20)->body());
  EXPECT_EQ(store.Find("b", owner)->messages(), Make("b")->messages());
  EXPECT_EQ(store.Find("b", 0), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-b", owner), store.Find("b", owner));
  EXPECT_EQ(store.Find("c", 0), nullptr);
}

TEST_F(ResponseDatabaseTest, WhatRanHasFailed) {
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    const auto done = Make("done", /*is_over=*/false), runs = Make("runs", /*is_over=*/false);
    ASSERT_EQ(store.Add(done), ResponseStore::Added::kYes);
    ASSERT_EQ(store.Add(runs), ResponseStore::Added::kYes);
    done->SetBody(R"({"status":"completed","output":[]})", {"x"}, /*is_over=*/true);
    EXPECT_TRUE(store.Update(*done));
    runs->SetBody(R"({"status":"in_progress","output":[]})", {}, /*is_over=*/false);
    EXPECT_TRUE(store.Update(*runs));
  }
  for (int i = 0; i < 2; ++i) {  // and stays so
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    EXPECT_EQ(store.Find("done", 0)->body(), R"({"status":"completed","output":[]})");
    EXPECT_NE(store.FindByItem("x", 0), nullptr);
    const auto failed = store.Find("runs", 0);
    EXPECT_TRUE(failed->is_over());
    EXPECT_THAT(failed->body(), HasSubstr(R"("status":"failed")"));
    EXPECT_THAT(failed->body(), HasSubstr("the server ended while"));
  }
}

TEST_F(ResponseDatabaseTest, CancelledByTheEndIsStored) {
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    ASSERT_EQ(store.Add(Make("a", /*is_over=*/false)), ResponseStore::Added::kYes);
    store.Stop();
  }
  ResponseStore store(1 << 20);
  ASSERT_TRUE(store.KeepIn(folder_));
  EXPECT_THAT(store.Find("a", 0)->body(), HasSubstr(R"("status":"cancelled")"));
}

TEST_F(ResponseDatabaseTest, ForgetsWhatTheStoreForgets) {
  {
    ResponseStore store(100000);
    ASSERT_TRUE(store.KeepIn(folder_));
    for (int i = 0; i < 30; ++i)
      ASSERT_EQ(store.Add(Make(std::to_string(i), true, 0, /*size=*/10000)),
                ResponseStore::Added::kYes);
    EXPECT_LT(store.size(), 10u);
  }
  EXPECT_THAT(Ids().back(), "29");
  EXPECT_LT(Ids().size(), 10u);
  {
    ResponseStore smaller(30000);
    ASSERT_TRUE(smaller.KeepIn(folder_));
    EXPECT_EQ(smaller.size(), 2u);
    EXPECT_NE(smaller.Find("29", 0), nullptr);
  }
  EXPECT_THAT(Ids(), ElementsAre("28", "29"));
  EXPECT_LT(fs::file_size(file()), 500000u);
}

TEST_F(ResponseDatabaseTest, IsPrivate) {
  ResponseStore store(1 << 20);
  ASSERT_TRUE(store.KeepIn(folder_.string() + "/"));
  ASSERT_EQ(store.Add(Make("a")), ResponseStore::Added::kYes);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    struct stat status {};
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 2);  // with the log
  struct stat status {};
  ASSERT_EQ(stat(folder_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(ResponseDatabaseTest, RefusesByName) {
  {
    const auto held = ResponseDatabase::Open(folder_);
    ASSERT_TRUE(held);
    EXPECT_THAT(ErrorOfOpen(), HasSubstr("responses.sqlite is in use by another process"));
    ASSERT_TRUE((*held)->Write(Make("a").get(), {}));
  }
  Change("PRAGMA user_version = 7");
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("found version 7"));
  Change("PRAGMA user_version = 1; PRAGMA application_id = 5");
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("found a file of another program"));
  Change(fmt::format("PRAGMA application_id = {}; UPDATE responses SET body = 'x'", 0x736c7263)
             .c_str());
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("is damaged: the checksum of response a is wrong"));
  Change("UPDATE secret SET bytes = x'00'");
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("is damaged"));
  std::ofstream(file()) << std::string(5000, 'x');
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("is damaged: file is not a database; move it away"));
  fs::remove_all(file());
  fs::create_directory(file());
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("expected to own, read and write"));
  fs::remove_all(folder_);
  std::ofstream{folder_} << "x";
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("Not a directory"));
  fs::remove_all(folder_);
  EXPECT_EQ(ErrorOfOpen(), "");
}

// No file of this process grows beyond a size, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*const handler_)(int);
  rlimit before_{};
};

// That the file takes no more is no reason to refuse an answer, and nothing that was removed comes
// back.
TEST_F(ResponseDatabaseTest, WhatCannotBeWrittenIsInMemory) {
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    ASSERT_EQ(store.Add(Make("a")), ResponseStore::Added::kYes);
    {
      const FileSizeLimit limit(fs::file_size(file().string() + "-wal"));
      EXPECT_EQ(store.Add(Make("b", true, 0, /*size=*/100000)), ResponseStore::Added::kYes);
      store.Remove(*store.Find("a", 0));
    }
    EXPECT_NE(store.Find("b", 0), nullptr);
    EXPECT_EQ(store.Find("a", 0), nullptr);
    EXPECT_EQ(store.Add(Make("c")), ResponseStore::Added::kYes);
  }
  EXPECT_THAT(Ids(), ElementsAre("c"));
}

}  // namespace
}  // namespace sluice
