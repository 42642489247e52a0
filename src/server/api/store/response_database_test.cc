#include "server/api/store/response_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <fmt/format.h>

#include "server/api/store/response_store.h"

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
                                              const std::string& owner = "", size_t size = 10) {
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
  // Runs `sql` in the file, which must not be open.
  void Change(const char* sql) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    sqlite3_close(database);
  }
  // Returns the ids in the file.
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
  std::string owner;
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    owner = store.OwnerOf("a key");
    ASSERT_EQ(store.Add(Make("a")), ResponseStore::Added::kYes);
    ASSERT_EQ(store.Add(Make("b", true, owner)), ResponseStore::Added::kYes);
    ASSERT_EQ(store.Add(Make("c")), ResponseStore::Added::kYes);
    ASSERT_EQ(store.Add(Make("a", true, "", 20)),
              ResponseStore::Added::kYes);  // replaces the first
    store.Remove(*store.Find("c", ""));
  }
  ResponseStore store(1 << 20);
  ASSERT_TRUE(store.KeepIn(folder_));
  EXPECT_EQ(store.size(), 2u);
  EXPECT_EQ(store.OwnerOf("a key"), owner);
  EXPECT_NE(store.OwnerOf("another"), owner);
  EXPECT_EQ(store.Find("a", "")->body(), Make("a", true, "", 20)->body());
  EXPECT_EQ(store.Find("b", owner)->messages(), Make("b")->messages());
  EXPECT_EQ(store.Find("b", ""), nullptr);
  EXPECT_EQ(store.FindByItem("item-of-b", owner), store.Find("b", owner));
  EXPECT_EQ(store.Find("c", ""), nullptr);
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
  for (int i = 0; i < 2; ++i) {  // again after a second restart
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    EXPECT_EQ(store.Find("done", "")->body(), R"({"status":"completed","output":[]})");
    EXPECT_NE(store.FindByItem("x", ""), nullptr);
    const auto failed = store.Find("runs", "");
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
  EXPECT_THAT(store.Find("a", "")->body(), HasSubstr(R"("status":"cancelled")"));
}

TEST_F(ResponseDatabaseTest, ForgetsWhatTheStoreForgets) {
  {
    ResponseStore store(100000);
    ASSERT_TRUE(store.KeepIn(folder_));
    for (int i = 0; i < 30; ++i)
      ASSERT_EQ(store.Add(Make(std::to_string(i), true, "", /*size=*/10000)),
                ResponseStore::Added::kYes);
    EXPECT_LT(store.size(), 10u);
  }
  EXPECT_THAT(Ids().back(), "29");
  EXPECT_LT(Ids().size(), 10u);
  {
    ResponseStore smaller(30000);
    ASSERT_TRUE(smaller.KeepIn(folder_));
    EXPECT_EQ(smaller.size(), 2u);
    EXPECT_NE(smaller.Find("29", ""), nullptr);
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
  EXPECT_EQ(files, 2);  // the database and its log
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
  Change("PRAGMA user_version = 2; PRAGMA application_id = 5");
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

// Triggers, views and generated columns are refused before they have any effect.
TEST_F(ResponseDatabaseTest, RefusesAnotherSchema) {
  for (const std::string sql : {
           "CREATE TRIGGER t AFTER INSERT ON responses BEGIN DELETE FROM responses; END",
           "CREATE VIEW v AS SELECT * FROM responses",
           "CREATE TABLE more(a)",
           "CREATE INDEX i ON responses(body)",
           "ALTER TABLE responses ADD COLUMN more TEXT AS (body || body)",
           "DROP TABLE responses; CREATE VIEW responses AS WITH RECURSIVE c(x) AS (SELECT 1 UNION "
           "ALL SELECT x + 1 FROM c) SELECT x AS sequence, x AS id, x AS owner FROM c",
           "DROP TABLE secret",
           "ALTER TABLE secret RENAME TO other",
       }) {
    fs::remove_all(folder_);
    ASSERT_EQ(ErrorOfOpen(), "");
    Change(sql.c_str());
    EXPECT_THAT(ErrorOfOpen(), HasSubstr("is damaged: ")) << sql;
    EXPECT_THAT(ErrorOfOpen(), HasSubstr("schema")) << sql;
  }
}

// A file of 20 pages whose schema takes practically forever to traverse: each page refers to the
// next one a hundred times.
TEST_F(ResponseDatabaseTest, AFileWithoutEndIsRefused) {
  constexpr size_t kPage = 512, kPages = 19, kCells = 100, kCell = kPage - 8;
  ASSERT_EQ(ErrorOfOpen(), "");
  for (const bool has_version : {true, false}) {
    std::string bytes(kPage * kPages, '\0');
    const auto put = [&bytes](size_t at, uint32_t value, int size) {
      for (int i = size - 1; i >= 0; --i, value >>= 8)
        bytes[at + static_cast<size_t>(i)] = static_cast<char>(value);
    };
    bytes.replace(0, 16, std::string("SQLite format 3\0", 16));
    put(16, kPage, 2);
    put(18, 0x0101, 2);  // versions of the file format
    put(21, 0x402020, 3);
    put(24, 1, 4);
    put(28, kPages, 4);
    put(44, 4, 4);  // format of the schema
    put(56, 1, 4);  // UTF-8
    put(92, 1, 4);
    if (has_version) {
      put(60, 2, 4);           // version 2
      put(68, 0x736c7263, 4);  // this program's application id
    }
    for (size_t page = 0; page < kPages; ++page) {
      const size_t begin = page * kPage, header = begin + (page == 0 ? 100 : 0);
      const bool is_leaf = page + 1 == kPages;
      put(header, is_leaf ? 13 : 5, 1);
      put(header + 3, is_leaf ? 1 : kCells, 2);
      put(header + 5, kCell, 2);
      if (!is_leaf) put(header + 8, static_cast<uint32_t>(page + 2), 4);
      for (size_t i = 0; i < (is_leaf ? 1 : kCells); ++i)
        put(header + (is_leaf ? 8 : 12) + 2 * i, kCell, 2);
      if (is_leaf) {
        put(begin + kCell, 0x0601, 2);          // a row of 6 bytes with key 1:
        put(begin + kCell + 2, 0x06000000, 4);  // five times NULL
        put(begin + kCell + 6, 0, 2);
      } else {
        put(begin + kCell, static_cast<uint32_t>(page + 2), 4);
        put(begin + kCell + 4, 1, 1);
      }
    }
    std::ofstream(file(), std::ios::trunc | std::ios::binary) << bytes;
    EXPECT_THAT(ErrorOfOpen(), HasSubstr("is damaged")) << has_version;
  }
}

TEST_F(ResponseDatabaseTest, RefusesPagesThatAreDamaged) {
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    for (int i = 0; i < 100; ++i)
      ASSERT_EQ(store.Add(Make(std::to_string(i), true, "", 4000)), ResponseStore::Added::kYes);
  }
  std::fstream stream(file(), std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(fs::file_size(file()) / 2));
  stream << std::string(8192, '\xff');
  stream.close();
  EXPECT_THAT(ErrorOfOpen(), HasSubstr("is damaged"));
}

TEST_F(ResponseDatabaseTest, RefusesTextsThatItDoesNotWrite) {
  for (const char* body :
       {R"({"output":7})", R"({"output":[7]})", R"({"output":[{}]})", "[]", "x"}) {
    fs::remove_all(folder_);
    {
      StoredResponse::Content content;
      content.id = "a";
      content.messages = content.input_items = "[]";
      content.body = body;
      const auto opened = ResponseDatabase::Open(folder_);
      ASSERT_TRUE((*opened)->Write(
          std::make_shared<StoredResponse>(std::move(content), /*is_over=*/true).get(), {}));
    }
    EXPECT_THAT(ErrorOfOpen(), HasSubstr("is damaged: response a was not written by")) << body;
  }
}

TEST_F(ResponseDatabaseTest, HoldsNoKeysButTheirDigests) {
  const std::string key = "sk-a-key-of-a-client";
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    const std::string owner = store.OwnerOf(key);
    EXPECT_EQ(owner.size(), 32u);
    EXPECT_NE(owner, store.OwnerOf("sk-another"));
    EXPECT_NE(owner, ResponseStore(1 << 20).OwnerOf(key)) << "its secret is its own";
    ASSERT_EQ(store.Add(Make("a", true, owner)), ResponseStore::Added::kYes);
  }
  std::ifstream stream(file(), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  EXPECT_EQ(bytes.find(key), std::string::npos);
}

// Limits the size of this process's files, which simulates a full disk.
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

// If the file cannot be written, responses are still stored, and removed ones do not come back.
TEST_F(ResponseDatabaseTest, WhatCannotBeWrittenIsInMemory) {
  {
    ResponseStore store(1 << 20);
    ASSERT_TRUE(store.KeepIn(folder_));
    ASSERT_EQ(store.Add(Make("a")), ResponseStore::Added::kYes);
    {
      const FileSizeLimit limit(fs::file_size(file().string() + "-wal"));
      EXPECT_EQ(store.Add(Make("b", true, "", /*size=*/100000)), ResponseStore::Added::kYes);
      store.Remove(*store.Find("a", ""));
    }
    EXPECT_NE(store.Find("b", ""), nullptr);
    EXPECT_EQ(store.Find("a", ""), nullptr);
    EXPECT_EQ(store.Add(Make("c")), ResponseStore::Added::kYes);
  }
  EXPECT_THAT(Ids(), ElementsAre("c"));
}

}  // namespace
}  // namespace sluice
