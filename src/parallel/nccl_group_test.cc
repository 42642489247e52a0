// Tests exchanges between emulated devices: gathered data, and the errors when a rank fails to take
// part.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/emulated_device.h"
#include "parallel/device_communicator.h"
#include "parallel/emulated_nccl.h"
#include "parallel/local_group.h"

namespace sluice {
namespace {

using emulated_nccl::Fault;
using ::testing::HasSubstr;

constexpr int64_t kBytes = 4096;  // size of each device array

struct RankOnDevice {
  explicit RankOnDevice(std::unique_ptr<Communicator> communicator)
      : all(std::move(communicator)) {}

  int rank() const { return all->rank(); }
  std::byte* mine() const { return memory.As<std::byte>(); }
  std::byte* joined() const { return memory.As<std::byte>() + kBytes; }

  // Returns bytes that depend on the rank and the position.
  std::vector<uint8_t> Pattern(int64_t bytes, int salt) const {
    std::vector<uint8_t> pattern(static_cast<size_t>(bytes));
    for (size_t i = 0; i < pattern.size(); ++i)
      pattern[i] = static_cast<uint8_t>(rank() * 61 + salt * 7 + static_cast<int>(i));
    return pattern;
  }

  std::unique_ptr<Communicator> all, stage;
  EmulatedDevice device;
  DeviceBuffer memory;
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<DeviceCommunicator> group;
};

// Runs `work` on each rank's thread. Returns each rank's exception message; "" if it threw none.
std::vector<std::string> RunRanks(int size, int stage_size,
                                  const std::function<void(RankOnDevice&)>& work,
                                  std::chrono::milliseconds deadline = std::chrono::minutes(1)) {
  auto communicators =
      MakeLocalGroup({.size = size, .deadline = std::chrono::minutes(1), .spin = false});
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) {
    threads.emplace_back([&, i] {
      const auto index = static_cast<size_t>(i);
      RankOnDevice rank(std::move(communicators[index]));
      try {
        if (stage_size > 1) rank.stage = rank.all->Split(i / stage_size * stage_size, stage_size);
        rank.memory = *rank.device.Allocate(2 * kBytes, "arrays");
        rank.stream = *rank.device.CreateStream();
        auto group = MakeNcclGroup(EmulatedNccl(), *rank.all, rank.stage.get(), *rank.stream,
                                   {.deadline = deadline});
        if (!group) throw std::runtime_error(group.error().message);
        rank.group = *std::move(group);
        work(rank);
      } catch (const std::exception& error) {
        errors[index] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Gathers pieces of these sizes twice without waiting in between, and compares.
void GatherTwice(RankOnDevice& rank, const std::vector<int64_t>& sizes, std::optional<int> root) {
  const int in_stage = rank.stage->rank();
  const int64_t size = sizes[static_cast<size_t>(in_stage)];
  std::vector<std::vector<uint8_t>> got(2), sent;
  int64_t total = 0;
  for (const int64_t each : sizes) total += each;
  for (int salt = 0; salt < 2; ++salt) {
    sent.push_back(rank.Pattern(size, salt));
    rank.stream->CopyToDevice(rank.mine(), sent.back().data(), size);
    rank.group->Gather(*rank.stream, sizes, rank.mine(), rank.joined(), root);
    auto& host = got[static_cast<size_t>(salt)];
    host.resize(static_cast<size_t>(total));
    if (!root || *root == in_stage) rank.stream->CopyToHost(host.data(), rank.joined(), total);
  }
  rank.group->Wait(*rank.stream);
  if (root && *root != in_stage) return;
  for (int salt = 0; salt < 2; ++salt) {
    size_t at = 0;
    for (size_t from = 0; from < sizes.size(); ++from) {
      const int sender = rank.rank() - in_stage + static_cast<int>(from);
      for (int64_t i = 0; i < sizes[from]; ++i, ++at) {
        ASSERT_EQ(got[static_cast<size_t>(salt)][at],
                  static_cast<uint8_t>(sender * 61 + salt * 7 + static_cast<int>(i)))
            << "rank " << rank.rank() << ", piece " << from << ", byte " << i;
      }
    }
  }
}

TEST(NcclGroupTest, GathersEqualAndUnequalPiecesAtAllRanksOrOne) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{64, 64}, {5, 0}, {48, 16, 32}, {7, 7, 7, 7}, {0, 0, 9}}) {
    const int size = static_cast<int>(sizes.size());
    for (const std::optional<int> root : {std::optional<int>(), {0}, {size - 1}}) {
      const auto errors =
          RunRanks(size, size, [&](RankOnDevice& rank) { GatherTwice(rank, sizes, root); });
      EXPECT_THAT(errors, ::testing::Each("")) << fmt::format("{} ranks", size);
    }
  }
}

TEST(NcclGroupTest, StagesGatherApartAndHandOn) {
  const auto errors = RunRanks(4, 2, [](RankOnDevice& rank) {
    GatherTwice(rank, {24, 40}, {});
    const bool is_first = rank.rank() < 2;
    std::vector<uint8_t> bytes = rank.Pattern(100, 5);
    if (is_first) {
      rank.stream->CopyToDevice(rank.mine(), bytes.data(), 100);
      rank.group->Send(*rank.stream, rank.mine(), 100, rank.rank() + 2);
      rank.group->Receive(*rank.stream, rank.joined(), 100, rank.rank() + 2);
    } else {
      rank.group->Receive(*rank.stream, rank.joined(), 100, rank.rank() - 2);
      rank.group->Send(*rank.stream, rank.joined(), 100, rank.rank() - 2);
    }
    std::vector<uint8_t> back(100);
    if (is_first) rank.stream->CopyToHost(back.data(), rank.joined(), 100);
    rank.group->Wait(*rank.stream);
    EXPECT_EQ(back, is_first ? bytes : std::vector<uint8_t>(100));
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

// All ranks report the same failure within a short time.
void ExpectFailure(Fault fault, const char* reason) {
  emulated_nccl::Inject(fault, 1);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = RunRanks(
      3, 3,
      [](RankOnDevice& rank) {
        for (int i = 0; i < 3; ++i)
          rank.group->Gather(*rank.stream, std::vector<int64_t>{8, 8, 8}, rank.mine(),
                             rank.joined());
        rank.group->Wait(*rank.stream);
        ADD_FAILURE() << "rank " << rank.rank() << " was told of nothing";
      },
      std::chrono::milliseconds(300));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  emulated_nccl::Inject(Fault::kNone, -1);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr(reason));
    EXPECT_EQ(error, errors.front());
  }
}

TEST(NcclGroupTest, AHangingDeviceFailsTheGroup) {
  ExpectFailure(Fault::kHang, "the devices did not end a step that all ranks had sent them");
}

TEST(NcclGroupTest, AnAsynchronousErrorFailsTheGroup) {
  ExpectFailure(Fault::kAsyncError,
                "NCCL failed: remote process exited or there was a network error"
                " (rank 1 is gone)");
}

TEST(NcclGroupTest, UnlikeCountsFailTheGroup) {
  ExpectFailure(Fault::kWrongCount, "NCCL failed: invalid usage");
}

TEST(NcclGroupTest, ARankThatSendsNothingIsNamed) {
  const auto errors = RunRanks(
      3, 3,
      [](RankOnDevice& rank) {
        if (rank.rank() == 2) {
          while (rank.all->failure().empty())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          throw GroupError(rank.all->failure());
        }
        rank.group->Gather(*rank.stream, std::vector<int64_t>{8, 8, 8}, rank.mine(), rank.joined());
        rank.group->Wait(*rank.stream);
      },
      std::chrono::milliseconds(200));
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                HasSubstr("rank 2 did not send its part of a step to its device within 0.2 s"));
}

// Ends exchanges in progress, and refuses later ones.
TEST(NcclGroupTest, AFailureOfTheHostEndsWaiting) {
  const auto errors = RunRanks(2, 2, [](RankOnDevice& rank) {
    const std::vector<int64_t> sizes = {8, 8};
    if (rank.rank() == 1) {
      rank.all->Fail("out of patience");
    } else {
      rank.group->Gather(*rank.stream, sizes, rank.mine(), rank.joined());
      try {
        rank.group->Wait(*rank.stream);
        ADD_FAILURE();
      } catch (const GroupError&) {
        EXPECT_TRUE(rank.stream->IsIdle());
      }
    }
    rank.group->Gather(*rank.stream, sizes, rank.mine(), rank.joined());
  });
  EXPECT_THAT(errors, ::testing::Each("rank 1: out of patience"));
}

TEST(NcclGroupTest, ARankThatDoesNotJoinIsWaitedForUntilTheDeadline) {
  auto communicators = MakeLocalGroup({.size = 2, .deadline = std::chrono::milliseconds(200)});
  EmulatedDevice device;
  const auto stream = *device.CreateStream();
  const auto group = MakeNcclGroup(EmulatedNccl(), *communicators[0], communicators[0].get(),
                                   *stream, {.deadline = std::chrono::milliseconds(200)});
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(group.error().message, HasSubstr("rank 1 did not reach"));
}

TEST(NcclLibraryTest, SaysWhatWasTried) {
  const auto library = NcclLibrary::Open("/nowhere/libnccl.so.2");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(library.error().message, HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_THAT(library.error().message, HasSubstr("SLUICE_NCCL"));
}

TEST(NcclLibraryTest, SaysWhatAmdsGpusNeed) {
  const auto absent = NcclLibrary::Open("/nowhere/librccl.so.1", NcclMaker::kAmd);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(absent.error().message,
              AllOf(HasSubstr("RCCL"), HasSubstr("SLUICE_RCCL"), HasSubstr("ROCm's package rccl")));
  const auto another = NcclLibrary::Open("libm.so.6", NcclMaker::kAmd);
  ASSERT_FALSE(another);
  EXPECT_THAT(another.error().message, HasSubstr("expected RCCL 2.14 or later"));
}

TEST(NcclLibraryTest, RefusesALibraryThatIsNotNccl) {
  const auto library = NcclLibrary::Open("libm.so.6");
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(library.error().message, HasSubstr("ncclGetVersion"));
}

// An installed NCCL has every function that the program uses.
TEST(NcclLibraryTest, OpensTheInstalledOne) {
  const auto library = NcclLibrary::Open("");
  if (!library && library.error().code == ErrorCode::kNotFound)
    GTEST_SKIP() << library.error().message;
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_THAT((*library)->Describe(), HasSubstr("NCCL 2."));
}

}  // namespace
}  // namespace sluice
