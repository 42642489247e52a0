#include "recording/recording.h"

#include <sys/stat.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "recording/event_journal.h"
#include "recording/export.h"
#include "recording/flight_recorder.h"
#include "recording/minimize.h"
#include "recording/redact.h"
#include "recording/segment.h"

namespace sluice::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RecordingFolder : public ::testing::Test {
 protected:
  RecordingFolder() {
    std::string name = ::testing::TempDir() + "recordingXXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~RecordingFolder() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<FlightRecorder> Start(uint64_t max_bytes, bool hashes_only = false) {
    RecorderSettings settings;
    settings.folder = folder_;
    settings.max_bytes = max_bytes;
    settings.hashes_only = hashes_only;
    auto recorder = FlightRecorder::Start(std::move(settings));
    EXPECT_TRUE(recorder);
    return *std::move(recorder);
  }

  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
  }

  std::filesystem::path folder_;
};

ActiveRequest RequestOf(std::vector<int32_t> prompt) {
  ActiveRequest active;
  active.handle = 7;
  active.request.id = "seven";
  active.request.prompt = std::move(prompt);
  active.request.sampling.stop_token_ids = {5};
  auto sequence = std::make_unique<ActiveSequence>();
  sequence->request = &active;
  active.sequences.push_back(std::move(sequence));
  return active;
}

TEST_F(RecordingFolder, KeepsRequestsAndArrivals) {
  {
    const auto recorder = Start(1 << 20);
    recorder->OnArrival("/v1/completions", R"({"prompt":"a"})");
    EngineJournal* const journal = recorder->journal(0);
    journal->OnStart(EnginePlan());
    int64_t time_us = 12;
    journal->OnAdd(time_us, RequestOf({1, 2, 3}));
    journal->OnAbort(7);
  }
  ASSERT_EQ(Files().size(), 1u);
  struct stat status {};
  ASSERT_EQ(stat(Files()[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto recording = Recording::Open(folder_);
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_TRUE(recording->has_beginning());
  const auto requests = RequestsOf(*recording);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].add.id, "seven");
  EXPECT_THAT(requests[0].add.prompt, ElementsAre(1, 2, 3));
  EXPECT_EQ(requests[0].add.sampling.stop_token_ids.size(), 1u);
  EXPECT_TRUE(requests[0].was_aborted);
  const auto arrival = ReadEvent<ArrivalEvent>(recording->streams().at(0).at(0).fields);
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->body, R"({"prompt":"a"})");
}

TEST_F(RecordingFolder, KeepsHashesAlone) {
  std::vector<int32_t> prompt(40);
  for (int32_t i = 0; i < 40; ++i) prompt[static_cast<size_t>(i)] = 0x41424344 + i;
  {
    const auto recorder = Start(1 << 20, /*hashes_only=*/true);
    recorder->OnArrival("/v1/completions", "a secret");
    int64_t time_us = 12;
    recorder->journal(0)->OnStart(EnginePlan());
    recorder->journal(0)->OnAdd(time_us, RequestOf(prompt));
  }
  const std::string bytes = *ReadFile(Files()[0]);
  EXPECT_THAT(bytes, Not(HasSubstr("secret")));
  const auto recording = Recording::Open(folder_);
  EXPECT_TRUE(recording->is_of_hashes());
  const auto requests = RequestsOf(*recording);
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_TRUE(requests[0].add.prompt.empty());
  EXPECT_EQ(requests[0].add.num_prompt_tokens, 40);
  EXPECT_EQ(requests[0].add.block_hashes.size(), 2u);
  EXPECT_TRUE(requests[0].add.sampling.stop_token_ids.empty());
}

TEST_F(RecordingFolder, StaysBounded) {
  constexpr uint64_t kMost = 1 << 20;
  {
    const auto recorder = Start(kMost);
    const std::string body(10'000, 'x');
    for (int i = 0; i < 1000; ++i) recorder->OnArrival("/v1/completions", body);
  }
  uint64_t total = 0;
  for (const auto& file : Files()) total += std::filesystem::file_size(file);
  EXPECT_LE(total, kMost + kMost / 8 + kChunkBytes);
  EXPECT_GT(total, kMost / 2);
  const auto recording = Recording::Open(folder_);
  ASSERT_TRUE(recording);
  EXPECT_FALSE(recording->has_beginning());
}

TEST_F(RecordingFolder, TellsGaps) {
  {
    const auto recorder = Start(1 << 30);
    // More data than fits into the buffer, produced faster than any disk can write it.
    const std::string body(FlightRecorder::kMaxBodyBytes, 'x');
    for (int i = 0; i < 60; ++i) recorder->OnArrival("/v1/completions", body);
    EXPECT_GT(recorder->counts().dropped_events, 0u);
    EXPECT_EQ(recorder->counts().events, 60u);
  }
  const auto recording = Recording::Open(folder_);
  uint64_t dropped = 0, kept = 0;
  for (const RecordedEvent& event : recording->streams().at(0)) {
    kept += event.kind == EventKind::kArrival;
    if (event.kind == EventKind::kGap) dropped += ReadEvent<GapEvent>(event.fields)->num_dropped;
  }
  EXPECT_EQ(kept + dropped, 60u);
  EXPECT_GT(dropped, 0u);
}

TEST_F(RecordingFolder, ReadsWhatADamagedFileStillHas) {
  {
    const auto recorder = Start(1 << 20);
    recorder->OnArrival("/a", "1");
  }
  const std::filesystem::path file = Files()[0];
  const std::string bytes = *ReadFile(file);
  const auto rewrite = [&](std::string text) { std::ofstream(file, std::ios::binary) << text; };
  rewrite(bytes.substr(0, bytes.size() - 1));
  auto recording = Recording::Open(folder_);
  ASSERT_TRUE(recording);
  EXPECT_THAT(recording->warnings(), ElementsAre(HasSubstr("cut off")));
  std::string changed = bytes;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  rewrite(changed);
  recording = Recording::Open(folder_);
  ASSERT_TRUE(recording);
  EXPECT_THAT(recording->warnings(), ElementsAre(HasSubstr("damaged")));
  changed = bytes;
  changed[12] = 9;  // the version
  rewrite(changed);
  recording = Recording::Open(folder_);
  ASSERT_FALSE(recording);
  EXPECT_THAT(recording.error().message, HasSubstr("version 1"));
}

TEST(EventTest, RefusesPromisesWithoutBytes) {
  std::string bytes;
  AppendEvent(bytes, SampledEvent{{{.sequence = {1, 0}, .token = 3}}});
  std::string_view rest = bytes, fields;
  EventKind kind{};
  ASSERT_TRUE(TakeEvent(rest, kind, fields));
  EXPECT_EQ(ReadEvent<SampledEvent>(fields)->rows.size(), 1u);
  // A list of 2^62 elements.
  const std::string promise("\xff\xff\xff\xff\xff\xff\xff\xff\x3f", 9);
  EXPECT_FALSE(ReadEvent<SampledEvent>(promise));
  EXPECT_FALSE(ReadEvent<SampledEvent>(fields.substr(0, fields.size() - 1)));
  EXPECT_FALSE(ReadEvent<SampledEvent>(std::string(fields) + "x"));
}

TEST(SegmentTest, KnowsTheSum) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
}

TEST(RedactTest, HashesDependOnAllBefore) {
  const HashKey key = RandomHashKey();
  std::vector<int32_t> a(48, 1), b = a;
  b[20] = 2;
  const auto of_a = HashBlocks(key, a), of_b = HashBlocks(key, b);
  ASSERT_EQ(of_a.size(), 3u);
  EXPECT_EQ(of_a[0], of_b[0]);
  EXPECT_NE(of_a[1], of_b[1]);
  EXPECT_NE(of_a[2], of_b[2]);
  EXPECT_NE(of_a[0], HashBlocks(RandomHashKey(), a)[0]);
}

TEST(MinimizeTest, FindsTheSmallestSet) {
  std::vector<uint64_t> all;
  for (uint64_t i = 0; i < 100; ++i) all.push_back(i);
  int trials = 0;
  const auto has = [&](const std::vector<uint64_t>& set, uint64_t one) {
    return std::ranges::find(set, one) != set.end();
  };
  const auto shows = [&](const std::vector<uint64_t>& set) {
    ++trials;
    return has(set, 13) && has(set, 77) && has(set, 14);
  };
  EXPECT_THAT(Minimize(all, shows, 1000), ElementsAre(13, 14, 77));
  EXPECT_LT(trials, 200);
  EXPECT_EQ(Minimize(
                {5}, [](const auto&) { return true; }, 10)
                .size(),
            1u);
}

TEST(ExportTest, WritesMooncakeTraces) {
  std::vector<RecordedRequest> requests(3);
  for (size_t i = 0; i < 3; ++i) {
    requests[i].unix_us = 1'000'000 + static_cast<int64_t>(i) * 250'000;
    requests[i].add.prompt.assign(i == 0 ? 1024 : 1030, 1);
    requests[i].add.num_prompt_tokens = std::ssize(requests[i].add.prompt);
    requests[i].outputs = {std::vector<int32_t>(3 + i, 2)};
  }
  requests[2].add.prompt[600] = 9;
  EXPECT_EQ(MooncakeTrace(requests),
            "{\"timestamp\":0,\"input_length\":1024,\"hash_ids\":[0,1],\"output_length\":3}\n"
            "{\"timestamp\":250,\"input_length\":1030,\"hash_ids\":[0,1,2],\"output_length\":4}\n"
            "{\"timestamp\":500,\"input_length\":1030,\"hash_ids\":[0,3,4],\"output_length\":5}\n");
  EXPECT_THAT(AiperfTrace(requests, [](const auto&) { return std::string("hello"); }),
              HasSubstr(R"("text_input":"hello","output_length":3)"));
}

}  // namespace
}  // namespace sluice::recording
