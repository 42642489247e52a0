#include "server/api/store/response_database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <openssl/rand.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/json.h"

namespace sluice {
namespace {

constexpr const char* kFileName = "responses.sqlite";
constexpr int64_t kApplicationId = 0x736c7263;  // "slrc"; identifies this program in the file's
                                                // header
constexpr int64_t kVersion = 2;
// Written as SQLite stores the statement, because CheckSchema() compares the text.
constexpr const char* kResponsesTable =
    "CREATE TABLE responses(sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner BLOB NOT "
    "NULL, is_over INTEGER NOT NULL, messages TEXT NOT NULL, input_items TEXT NOT NULL, body TEXT "
    "NOT NULL, item_ids TEXT NOT NULL, checksum INTEGER NOT NULL) STRICT";
constexpr const char* kSecretTable = "CREATE TABLE secret(bytes BLOB NOT NULL) STRICT";
// Maximum number of bytes of a schema row and of its SQL, which are read before they are compared.
constexpr int kMaxSchemaBytes = 1 << 20;
constexpr int kMaxSqlBytes = 4096;
// Maximum number of steps for checking a file, in addition to one for each of its bytes.
constexpr int64_t kMaxSteps = 1'000'000;
constexpr int kStepsBetweenChecks = 1000;
// Columns of a row that is read or written, in order.
enum RowColumn {
  kColumnId,
  kColumnOwner,
  kColumnIsOver,
  kColumnMessages,
  kColumnInputItems,
  kColumnBody,
  kColumnItemIds,
  kColumnChecksum
};

std::string_view TextOf(sqlite3_stmt* row, int column) {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(row, column));
  return {bytes == nullptr ? "" : bytes, static_cast<size_t>(sqlite3_column_bytes(row, column))};
}

int BindOwner(sqlite3_stmt* statement, std::string_view owner) {
  // A null pointer would bind NULL instead of an empty value.
  return sqlite3_bind_blob64(statement, kColumnOwner + 1, owner.empty() ? "" : owner.data(),
                             owner.size(), SQLITE_STATIC);
}

int BindColumn(sqlite3_stmt* statement, RowColumn column, std::string_view text) {
  return sqlite3_bind_text64(statement, column + 1, text.data(), text.size(), SQLITE_STATIC,
                             SQLITE_UTF8);
}

std::string WordsJson(const std::vector<std::string>& words) {
  json::Value::Array list;
  for (const std::string& word : words) list.emplace_back(word);
  return json::Write(json::Value(std::move(list)));
}

std::optional<std::vector<std::string>> ReadWords(std::string_view text) {
  const Result<json::Value> list = json::Parse(text);
  if (!list || !list->is_array()) return std::nullopt;
  std::vector<std::string> words;
  for (const json::Value& word : list->as_array()) {
    if (!word.is_string()) return std::nullopt;
    words.push_back(word.as_string());
  }
  return words;
}

int64_t RowChecksum(std::initializer_list<std::string_view> texts, bool is_over) {
  XXH64_hash_t sum = is_over ? 1 : 0;
  for (const std::string_view text : texts)
    sum = XXH3_64bits_withSeed(text.data(), text.size(), sum);
  return static_cast<int64_t>(sum);
}

// Creates the folder and the file so that only their owner has access. SQLite would let others read
// the file.
Status MakePrivateFile(const std::filesystem::path& folder, const std::filesystem::path& file) {
  std::error_code error;
  std::filesystem::create_directories(folder.parent_path(), error);
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--response-store {}: expected a folder that exists or can be created: {}",
                    folder.string(), std::strerror(errno)),
        "response-store");
  }
  const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool is_made = descriptor >= 0 && fchmod(descriptor, 0600) == 0;
  const int reason = errno;
  if (descriptor >= 0) close(descriptor);
  if (is_made) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--response-store: expected to own, read and write {}: {}", file.string(),
                          std::strerror(reason)),
              "response-store");
}

}  // namespace

void ResponseDatabase::Close::operator()(sqlite3* database) const {
  sqlite3_close(database);
}
void ResponseDatabase::Close::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

Result<std::unique_ptr<ResponseDatabase>> ResponseDatabase::Open(
    const std::filesystem::path& folder) {
  // Removes a trailing '/'.
  const std::filesystem::path place = folder.has_filename() ? folder : folder.parent_path();
  std::unique_ptr<ResponseDatabase> opened(new ResponseDatabase(place / kFileName));
  RETURN_IF_ERROR(MakePrivateFile(place, opened->file_));
  RETURN_IF_ERROR(opened->Connect());
  return opened;
}

Status ResponseDatabase::Connect() {
  sqlite3* database = nullptr;
  const int code = sqlite3_open_v2(file_.c_str(), &database,
                                   SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  database_.reset(database);
  if (code != SQLITE_OK) return Failure(code);
  sqlite3_extended_result_codes(database, 1);
  RETURN_IF_ERROR(Restrict());
  // With an exclusive lock, the write-ahead log needs no memory that is shared with other
  // processes.
  RETURN_IF_ERROR(Execute("PRAGMA locking_mode = EXCLUSIVE"));
  ASSIGN_OR_RETURN(const bool is_new, IsNew());
  if (!is_new) {
    RETURN_IF_ERROR(CheckSchema());
    RETURN_IF_ERROR(CheckPages());
  }
  sqlite3_limit(database, SQLITE_LIMIT_LENGTH, std::numeric_limits<int>::max());
  RETURN_IF_ERROR(Execute("PRAGMA journal_mode = WAL"));
  RETURN_IF_ERROR(Execute("PRAGMA synchronous = NORMAL"));
  RETURN_IF_ERROR(Execute("PRAGMA journal_size_limit = 4194304"));
  // Makes SQLite overwrite deleted data in the file.
  RETURN_IF_ERROR(Execute("PRAGMA secure_delete = ON"));
  RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE"));  // takes the lock, which is never released
  if (is_new) RETURN_IF_ERROR(Create());
  RETURN_IF_ERROR(Execute("COMMIT"));
  sqlite3_progress_handler(database, 0, nullptr, nullptr);
  RETURN_IF_ERROR(ReadSecret());
  ASSIGN_OR_RETURN(
      put_, Prepare("INSERT INTO responses(id, owner, is_over, messages, input_items, body, "
                    "item_ids, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE "
                    "SET is_over = excluded.is_over, body = excluded.body, item_ids = "
                    "excluded.item_ids, checksum = excluded.checksum"));
  ASSIGN_OR_RETURN(remove_, Prepare("DELETE FROM responses WHERE id = ?"));
  return {};
}

// Call before anything is read from the file.
Status ResponseDatabase::Restrict() {
  sqlite3* database = database_.get();
  static constexpr std::pair<int, int> kSettings[] = {
      {SQLITE_DBCONFIG_DEFENSIVE, 1},      {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
      {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0}, {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
      {SQLITE_DBCONFIG_DQS_DDL, 0},        {SQLITE_DBCONFIG_DQS_DML, 0}};
  for (const auto& [setting, value] : kSettings) {
    const int code = sqlite3_db_config(database, setting, value, static_cast<int*>(nullptr));
    if (code != SQLITE_OK) return Failure(code);
  }
  std::error_code ignored;
  const uintmax_t found = std::filesystem::file_size(file_, ignored);
  const int64_t file_bytes = ignored ? 0 : static_cast<int64_t>(found);
  // These limits apply until the pages are checked, because the pages may form a cycle.
  sqlite3_limit(database, SQLITE_LIMIT_LENGTH, kMaxSchemaBytes);
  sqlite3_limit(database, SQLITE_LIMIT_SQL_LENGTH, kMaxSqlBytes);
  sqlite3_limit(database, SQLITE_LIMIT_ATTACHED, 0);
  steps_left_ = (kMaxSteps + file_bytes) / kStepsBetweenChecks;
  sqlite3_progress_handler(
      database, kStepsBetweenChecks,
      [](void* self) { return --static_cast<ResponseDatabase*>(self)->steps_left_ < 0 ? 1 : 0; },
      this);
  RETURN_IF_ERROR(Execute("PRAGMA cell_size_check = ON"));
  return Execute("PRAGMA mmap_size = 0");
}

// Returns whether the file is still empty. Returns an error, before anything is written, if the
// file belongs to another program or has another version.
Result<bool> ResponseDatabase::IsNew() {
  ASSIGN_OR_RETURN(const int64_t application, Number("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, Number("PRAGMA user_version"));
  if (application == kApplicationId && version == kVersion) return false;
  // count(*) is not used: it is a single step that visits all pages.
  ASSIGN_OR_RETURN(const int64_t has_tables, Number("SELECT exists(SELECT 1 FROM sqlite_schema)"));
  if (has_tables == 0) return true;
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--response-store: expected version {} of the response store in {}, "
                          "found {}; give another folder, or move the file away",
                          kVersion, file_.string(),
                          application == kApplicationId ? fmt::format("version {}", version)
                                                        : "a file of another program"),
              "response-store");
}

Status ResponseDatabase::Create() {
  RETURN_IF_ERROR(Execute(kResponsesTable));
  RETURN_IF_ERROR(Execute(kSecretTable));
  return Execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, kVersion)
          .c_str());
}

Status ResponseDatabase::CheckSchema() {
  ASSIGN_OR_RETURN(const Statement read,
                   Prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"));
  const std::array<std::string_view, 4> expected[] = {
      {"table", "responses", "responses", kResponsesTable},
      {"table", "secret", "secret", kSecretTable},
      {"index", "sqlite_autoindex_responses_1", "responses", ""},
  };
  for (const auto& entry : expected) {
    const int code = sqlite3_step(read.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE) return Failure(code);
    for (size_t i = 0; i < entry.size(); ++i) {
      if (code == SQLITE_DONE || TextOf(read.get(), static_cast<int>(i)) != entry[i])
        return Damaged(
            fmt::format("expected its schema to have the {} {} as this program creates it",
                        entry[0], entry[1]));
    }
  }
  const int code = sqlite3_step(read.get());
  if (code == SQLITE_DONE) return {};
  if (code != SQLITE_ROW) return Failure(code);
  return Damaged(fmt::format("its schema has '{}', which this program does not create",
                             TextOf(read.get(), 1).substr(0, 100)));
}

Status ResponseDatabase::CheckPages() {
  ASSIGN_OR_RETURN(const Statement check, Prepare("PRAGMA quick_check(1)"));
  const int code = sqlite3_step(check.get());
  if (code != SQLITE_ROW) return Failure(code);
  const std::string_view found = TextOf(check.get(), 0);
  return found == "ok" ? Status() : Damaged(found.substr(0, 200));
}

Status ResponseDatabase::ReadSecret() {
  ASSIGN_OR_RETURN(const Statement read, Prepare("SELECT bytes FROM secret"));
  const int code = sqlite3_step(read.get());
  if (code == SQLITE_ROW) {
    const auto* bytes = static_cast<const unsigned char*>(sqlite3_column_blob(read.get(), 0));
    if (sqlite3_column_bytes(read.get(), 0) != static_cast<int>(kSecretBytes))
      return Damaged("its secret has a wrong size");
    secret_.assign(bytes, bytes + kSecretBytes);
    return {};
  }
  if (code != SQLITE_DONE) return Failure(code);
  secret_.resize(kSecretBytes);
  CHECK(RAND_bytes(secret_.data(), static_cast<int>(kSecretBytes)) == 1, "no random bytes");
  ASSIGN_OR_RETURN(const Statement write, Prepare("INSERT INTO secret(bytes) VALUES (?)"));
  sqlite3_bind_blob(write.get(), 1, secret_.data(), static_cast<int>(kSecretBytes), SQLITE_STATIC);
  return Step(write.get());
}

Status ResponseDatabase::Read(
    const std::function<void(StoredResponse::Content content, bool is_over)>& take) {
  ASSIGN_OR_RETURN(const Statement read,
                   Prepare("SELECT id, owner, is_over, messages, input_items, body, item_ids, "
                           "checksum FROM responses ORDER BY sequence"));
  sqlite3_stmt* row = read.get();
  for (;;) {
    const int code = sqlite3_step(row);
    if (code == SQLITE_DONE) return {};
    if (code != SQLITE_ROW) return Failure(code);
    StoredResponse::Content content;
    content.id = TextOf(row, kColumnId);
    content.owner = TextOf(row, kColumnOwner);
    const bool is_over = sqlite3_column_int64(row, kColumnIsOver) != 0;
    content.messages = TextOf(row, kColumnMessages);
    content.input_items = TextOf(row, kColumnInputItems);
    content.body = TextOf(row, kColumnBody);
    const std::string_view items = TextOf(row, kColumnItemIds);
    const int64_t checksum = RowChecksum(
        {content.id, content.owner, content.messages, content.input_items, content.body, items},
        is_over);
    auto item_ids = ReadWords(items);
    if (checksum != sqlite3_column_int64(row, kColumnChecksum) || !item_ids)
      return Damaged(fmt::format("the checksum of response {} is wrong", content.id));
    if (!IsWellFormed(content.messages, content.input_items, content.body))
      return Damaged(fmt::format("response {} was not written by this program", content.id));
    content.item_ids = *std::move(item_ids);
    take(std::move(content), is_over);
  }
}

Status ResponseDatabase::Write(const StoredResponse* response,
                               std::span<const std::string> removed) {
  RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  Status status = ChangeRows(response, removed);
  if (status) status = Execute("COMMIT");
  // After some errors SQLite has already rolled back.
  if (!status && sqlite3_get_autocommit(database_.get()) == 0) (void)Execute("ROLLBACK");
  return status;
}

Status ResponseDatabase::ChangeRows(const StoredResponse* response,
                                    std::span<const std::string> removed) {
  for (const std::string& id : removed) {
    BindColumn(remove_.get(), kColumnId, id);
    RETURN_IF_ERROR(Step(remove_.get()));
  }
  return response == nullptr ? Status() : Put(*response);
}

Status ResponseDatabase::Put(const StoredResponse& response) {
  // Reads is_over before the JSON, because the JSON of a complete response does not change.
  const bool is_over = response.is_over();
  const std::string body = response.body();
  const std::string item_ids = WordsJson(response.item_ids());
  sqlite3_stmt* row = put_.get();
  BindColumn(row, kColumnId, response.id());
  BindOwner(row, response.owner());
  sqlite3_bind_int64(row, kColumnIsOver + 1, is_over ? 1 : 0);
  BindColumn(row, kColumnMessages, response.messages());
  BindColumn(row, kColumnInputItems, response.input_items());
  BindColumn(row, kColumnBody, body);
  BindColumn(row, kColumnItemIds, item_ids);
  sqlite3_bind_int64(row, kColumnChecksum + 1,
                     RowChecksum({response.id(), response.owner(), response.messages(),
                                  response.input_items(), body, item_ids},
                                 is_over));
  Status status = Step(row);
  sqlite3_clear_bindings(row);
  return status;
}

Status ResponseDatabase::Execute(const char* sql) {
  const int code = sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status() : Failure(code);
}

Status ResponseDatabase::Step(sqlite3_stmt* statement) {
  const int code = sqlite3_step(statement);
  Status status = code == SQLITE_DONE ? Status() : Failure(code);
  sqlite3_reset(statement);
  return status;
}

Result<ResponseDatabase::Statement> ResponseDatabase::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database_.get(), sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) return Failure(code);
  return Statement(statement);
}

Result<int64_t> ResponseDatabase::Number(const char* sql) {
  ASSIGN_OR_RETURN(const Statement statement, Prepare(sql));
  const int code = sqlite3_step(statement.get());
  if (code != SQLITE_ROW) return Failure(code);
  return sqlite3_column_int64(statement.get(), 0);
}

tl::unexpected<Error> ResponseDatabase::Damaged(std::string_view what) const {
  return Fail(
      ErrorCode::kInvalidData,
      fmt::format("--response-store: {} is damaged: {}; move it away to begin with an empty "
                  "store",
                  file_.string(), what),
      "response-store");
}

tl::unexpected<Error> ResponseDatabase::Failure(int code) const {
  const char* reason =
      database_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(database_.get());
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("--response-store: {} is in use by another process; each server "
                              "needs a separate folder",
                              file_.string()),
                  "response-store");
    case SQLITE_CORRUPT:
    case SQLITE_TOOBIG:
    case SQLITE_NOTADB: return Damaged(reason);
    case SQLITE_INTERRUPT:
      return Damaged("reading it takes more steps than a file of its size should need");
    case SQLITE_FULL:
      return Fail(ErrorCode::kResourceExhausted,
                  fmt::format("--response-store: there is no space left for {}", file_.string()),
                  "response-store");
    default: break;
  }
  const int system_error = database_ == nullptr ? 0 : sqlite3_system_errno(database_.get());
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--response-store: {} cannot be used: {}{}", file_.string(), reason,
                  system_error == 0 ? "" : fmt::format(" ({})", std::strerror(system_error))),
      "response-store");
}

}  // namespace sluice
