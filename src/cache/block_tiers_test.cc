#include "cache/block_tiers.h"

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <unordered_set>

#include <gtest/gtest.h>

#include "base/hex.h"
#include "base/work_budget.h"
#include "cache/cache_salt.h"
#include "cache/prefix_index.h"

namespace sluice {
namespace {

constexpr int kTierBlock = 4;
constexpr int64_t kTierBytes = 24;

// A pool whose blocks hold 24 bytes each.
class FakeBytes final : public BlockBytes {
 public:
  using Block = std::array<uint64_t, 3>;
  explicit FakeBytes(int64_t num_blocks) : blocks(static_cast<size_t>(num_blocks)) {}
  int64_t bytes_per_block() const override { return kTierBytes; }
  void Read(BlockId block, std::byte* bytes) const override {
    std::memcpy(bytes, blocks[static_cast<size_t>(block)].data(), kTierBytes);
  }
  void Write(BlockId block, const std::byte* bytes) override {
    std::memcpy(blocks[static_cast<size_t>(block)].data(), bytes, kTierBytes);
  }
  std::vector<Block> blocks;
};

std::shared_ptr<ByteBlocks> Memory(int64_t count) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(
      static_cast<size_t>(count * ByteBlocks::Padded(kTierBytes)));
  return ByteBlocks::Divide(*bytes, bytes, kTierBytes);
}

// A folder that is removed at the end of the test.
class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "tiers-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TierIdentity Identity(int number) {
  return IdentityOfText(std::to_string(number));
}

TierName Name(int number) {
  return {.digest = IdentityOfText("name " + std::to_string(number)), .group = 2};
}

HeldBytes BytesOf(ByteBlocks& memory, int number) {
  HeldBytes bytes = memory.Take();
  std::memset(bytes.get(), number, kTierBytes);
  return bytes;
}

DiskTier::Options OptionsIn(const Folder& folder) {
  return {.folder = folder.path(),
          .block_bytes = kTierBytes,
          .max_bytes = 1 << 20,
          .max_queued = 64,
          .max_loaded = 8};
}

std::shared_ptr<DiskTier> OpenDisk(const DiskTier::Options& options, int identity = 1) {
  auto disk = DiskTier::Open(options, Identity(identity), Memory(64));
  EXPECT_TRUE(disk) << disk.error().message;
  return disk ? *disk : nullptr;
}

void WaitFor(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(condition());
}

// Returns the first byte of a block on disk; -1 if the block is not found.
int ReadBack(DiskTier& disk, int number) {
  disk.Request(Name(number), true);
  while (disk.StateOf(Name(number)) == DiskTier::State::kComing) disk.WaitForOne(1);
  const HeldBytes bytes = disk.Take(Name(number));
  return bytes == nullptr ? -1 : static_cast<int>(*bytes);
}

std::filesystem::path FileOf(const Folder& folder, int number, int identity = 1) {
  return folder.path() / HexDigits(Identity(identity)) / TierFileName(Name(number));
}

TEST(TierKey, NamesAChainByAllItsTokensAndItsSalt) {
  const std::vector<int32_t> a = {1, 2, 3, 4}, b = {5, 6, 7, 8}, image = {1, -7, 2, 3};
  const TierKey first = NextTierKey(FirstTierKey(""), a);
  EXPECT_EQ(first.digest, NextTierKey(FirstTierKey(""), a).digest);
  EXPECT_NE(first.digest, NextTierKey(FirstTierKey("tenant"), a).digest);
  EXPECT_NE(NextTierKey(first, b).digest, NextTierKey(FirstTierKey(""), b).digest);
  EXPECT_TRUE(NextTierKey(first, b).is_durable);
  EXPECT_FALSE(NextTierKey(NextTierKey(first, image), b).is_durable) << "ids of images";
  const std::string adapter = MakeCacheSalt({.client = "", .adapter = "a", .serial = 1});
  EXPECT_FALSE(NextTierKey(FirstTierKey(adapter), a).is_durable) << "serials of adapters";
  std::vector<int32_t> large(1000);
  EXPECT_NE(NextTierKey(first, large).digest, first.digest);
}

TEST(TierFile, NamesAreReadAsTheyAreWritten) {
  const std::string name = TierFileName(Name(1));
  EXPECT_EQ(ReadTierFileName(name), Name(1));
  for (const std::string& other : {name + "x", name.substr(1), std::string("lock"), std::string(),
                                   "g" + name.substr(1), name.substr(0, 64) + "-02.kv"}) {
    EXPECT_FALSE(ReadTierFileName(other)) << other;
  }
}

TEST(RamTier, GivesUpTheLongestUnused) {
  const auto memory = Memory(3);
  RamTier ram(3);
  for (int i = 0; i < 3; ++i) ram.Add({.name = Name(i), .bytes = BytesOf(*memory, i)});
  EXPECT_EQ(memory->num_free(), 0);
  EXPECT_TRUE(ram.Touch(Name(0)));
  EXPECT_EQ(ram.TakeOldest()->name, Name(1));
  EXPECT_EQ(static_cast<int>(*ram.Take(Name(2))), 2);
  EXPECT_EQ(ram.Take(Name(2)), nullptr);
  EXPECT_EQ(ram.size(), 1);
  EXPECT_EQ(memory->num_free(), 2);
  ram.Add({.name = Name(3), .bytes = BytesOf(*memory, 3)});
  EXPECT_EQ(ram.TakeNewest()->name, Name(3));
  ram.Clear();
  EXPECT_FALSE(ram.TakeOldest());
  EXPECT_FALSE(ram.TakeNewest());
  EXPECT_EQ(memory->num_free(), 3);
}

TEST(DiskTier, IsFoundAgainAfterARestart) {
  const Folder folder;
  const auto memory = Memory(64);
  {
    const auto disk = OpenDisk(OptionsIn(folder));
    for (int i = 0; i < 5; ++i) disk->Write(Name(i), BytesOf(*memory, i));
    EXPECT_EQ(ReadBack(*disk, 3), 3) << "written or not";
    EXPECT_FALSE(DiskTier::Open(OptionsIn(folder), Identity(1), Memory(1))) << "it is locked";
  }
  EXPECT_EQ(memory->num_free(), 64);
  const auto disk = OpenDisk(OptionsIn(folder));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ReadBack(*disk, i), i);
  EXPECT_EQ(ReadBack(*disk, 5), -1);
  EXPECT_FALSE(disk->Request(Name(5), true));
  disk->Clear();
  EXPECT_EQ(ReadBack(*disk, 3), -1);
  WaitFor([&] { return !std::filesystem::exists(FileOf(folder, 3)); });
}

TEST(DiskTier, DamagedCutAndForeignFilesAreMissesAndRemoved) {
  const Folder folder;
  const auto memory = Memory(64);
  {
    const auto disk = OpenDisk(OptionsIn(folder));
    for (int i = 0; i < 6; ++i) disk->Write(Name(i), BytesOf(*memory, i));
  }
  const auto change = [&](int number, int64_t place) {
    std::fstream file(FileOf(folder, number), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(place);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(place);
    file.put(byte);
  };
  const auto size = static_cast<int64_t>(std::filesystem::file_size(FileOf(folder, 0)));
  EXPECT_EQ(size, TierFileBytes(kTierBytes));
  change(0, size - 1);  // a byte of the block
  change(1, 8);         // the version
  change(2, 20);        // the identity
  std::filesystem::resize_file(FileOf(folder, 3), static_cast<uintmax_t>(size - 1));
  std::filesystem::copy_file(FileOf(folder, 5), FileOf(folder, 4),
                             std::filesystem::copy_options::overwrite_existing);
  const auto disk = OpenDisk(OptionsIn(folder));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ReadBack(*disk, i), -1) << i;
  EXPECT_EQ(ReadBack(*disk, 5), 5);
  EXPECT_EQ(disk->counts().damaged, 5u);
  for (int i = 0; i < 5; ++i) WaitFor([&] { return !std::filesystem::exists(FileOf(folder, i)); });
  // A change of any byte is detected.
  for (int64_t place = 0; place < size; ++place) {
    change(5, place);
    std::array<std::byte, kTierBytes> bytes;
    EXPECT_FALSE(ReadTierFile(FileOf(folder, 5).parent_path(), Identity(1), Name(5), bytes))
        << place;
    change(5, place);
  }
}

TEST(DiskTier, IdentitiesDoNotMeet) {
  const Folder folder;
  const auto memory = Memory(64);
  const auto disk = OpenDisk(OptionsIn(folder));
  disk->Write(Name(1), BytesOf(*memory, 1));
  EXPECT_EQ(ReadBack(*disk, 1), 1);
  WaitFor([&] { return disk->counts().written == 1; });
  ASSERT_TRUE(disk->Use(Identity(2)));
  EXPECT_EQ(ReadBack(*disk, 1), -1);
  disk->Write(Name(1), BytesOf(*memory, 9));
  EXPECT_EQ(ReadBack(*disk, 1), 9);
  WaitFor([&] { return disk->counts().written == 2; });
  ASSERT_TRUE(disk->Use(Identity(1)));
  EXPECT_EQ(ReadBack(*disk, 1), 1);
  disk->Rest();
  disk->Write(Name(2), BytesOf(*memory, 2));
  EXPECT_EQ(ReadBack(*disk, 1), -1);
  EXPECT_EQ(ReadBack(*disk, 2), -1);
}

TEST(DiskTier, TakesNoMoreThanItMay) {
  const Folder folder;
  const auto memory = Memory(64);
  DiskTier::Options options = OptionsIn(folder);
  {
    const auto other = OpenDisk(options, 2);
    for (int i = 0; i < 3; ++i) other->Write(Name(i), BytesOf(*memory, i));
  }
  options.max_bytes = 4 * 4096;
  {
    const auto disk = OpenDisk(options);
    for (int i = 0; i < 4; ++i) disk->Write(Name(i), BytesOf(*memory, i));
    WaitFor([&] { return disk->counts().written == 4; });
    EXPECT_EQ(disk->counts().used_bytes, 4 * 4096);
    for (int i = 0; i < 3; ++i) {
      WaitFor([&] { return !std::filesystem::exists(FileOf(folder, i, 2)); });
    }
    EXPECT_EQ(ReadBack(*disk, 0), 0);
    disk->Write(Name(4), BytesOf(*memory, 4));
    WaitFor([&] { return disk->counts().written == 5; });
    EXPECT_EQ(ReadBack(*disk, 0), 0) << "it was used";
    EXPECT_EQ(ReadBack(*disk, 1), -1) << "the longest unused";
    EXPECT_EQ(disk->counts().used_bytes, 4 * 4096);
  }
  options.max_bytes = 2 * 4096;
  EXPECT_EQ(OpenDisk(options)->counts().used_bytes, 2 * 4096) << "also at the start";
}

TEST(DiskTier, WritesNoFasterThanItMay) {
  const Folder folder;
  const auto memory = Memory(64);
  DiskTier::Options options = OptionsIn(folder);
  options.write_bytes_per_second = 1;
  options.max_queued = 2;
  const auto disk = OpenDisk(options);
  disk->Write(Name(0), BytesOf(*memory, 0));
  WaitFor([&] { return disk->counts().written == 1; });
  for (int i = 1; i < 6; ++i) disk->Write(Name(i), BytesOf(*memory, i));
  EXPECT_EQ(disk->counts().dropped, 3u) << "the oldest";
  EXPECT_EQ(ReadBack(*disk, 1), -1);
  EXPECT_EQ(ReadBack(*disk, 5), 5) << "from the queue";
  EXPECT_EQ(disk->counts().written, 1u);
}

TEST(DiskTier, AFullDiskEndsWritingAlone) {
  const Folder folder;
  const auto memory = Memory(64);
  const auto disk = OpenDisk(OptionsIn(folder));
  disk->Write(Name(0), BytesOf(*memory, 7));
  WaitFor([&] { return disk->counts().written == 1; });
  // Limit the size of files, so that a write fails midway, as on a full disk.
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{.rlim_cur = 100, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  disk->Write(Name(1), BytesOf(*memory, 1));
  WaitFor([&] { return !disk->counts().writes; });
  setrlimit(RLIMIT_FSIZE, &limit);
  (void)signal(SIGXFSZ, before);
  EXPECT_EQ(ReadBack(*disk, 1), -1);
  disk->Write(Name(2), BytesOf(*memory, 2));
  EXPECT_EQ(ReadBack(*disk, 2), -1);
  EXPECT_EQ(ReadBack(*disk, 0), 7);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FileOf(folder, 0).parent_path()))
    files += entry.path().extension() == ".kv" || entry.path().filename() != "lock";
  EXPECT_EQ(files, 1);
}

// The block of bytes calls `then` on the thread that gives it up last.
HeldBytes WithEnd(const HeldBytes& bytes, std::function<void()> then) {
  return {bytes.get(), [bytes, then = std::move(then)](std::byte*) { then(); }};
}

// A write for which memory runs out, at whichever allocation, costs that block alone.
TEST(DiskTier, LackOfMemoryCostsABlockAlone) {
  static thread_local std::optional<WorkBudget> budget;  // of the tier's thread
  const Folder folder;
  const auto memory = Memory(256);
  DiskTier::Options options = OptionsIn(folder);
  options.max_bytes = 1 << 24;  // room for all blocks
  const auto disk = OpenDisk(options);
  const auto changes = std::make_shared<TierChanges>();
  const auto count = [&] { return disk->counts().written + disk->counts().dropped; };
  int number = 0;
  for (int64_t limit = 0; limit < 12288; limit += 64) {
    // After the first block, `limit` bytes can be allocated for the second one.
    const WorkLimits limits = {.cpu_seconds = 1e9, .bytes = limit};
    disk->Write(Name(number), WithEnd(BytesOf(*memory, 1), [limits] { budget.emplace(limits); }));
    disk->Write(Name(number + 1), WithEnd(BytesOf(*memory, 1), [] { budget.reset(); }), changes);
    // A copy of this list needs more memory than the write itself.
    for (int i = 0; i < 256; ++i) disk->Tell(Name(number + 1), changes);
    WaitFor([&] { return count() == static_cast<uint64_t>(number + 2); });
    changes->Take();
    number += 2;
    ASSERT_TRUE(disk->counts().writes) << limit << " bytes";
  }
  EXPECT_GT(disk->counts().dropped, 0u);
  EXPECT_GT(disk->counts().written, static_cast<uint64_t>(number / 2));
  uint64_t known = 0;
  for (int i = 0; i < number; ++i) known += disk->Has(Name(i)) ? 1 : 0;
  EXPECT_EQ(known, disk->counts().written);
  // What the tier does not know of is not in its folder, either.
  uint64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FileOf(folder, 0).parent_path()))
    files += entry.path().filename() != "lock";
  EXPECT_EQ(files, disk->counts().written);
}

TEST(DiskTier, AFolderInThePlaceOfAFileCostsThatBlockAlone) {
  const Folder folder;
  const auto memory = Memory(64);
  const auto disk = OpenDisk(OptionsIn(folder));
  std::filesystem::create_directories(FileOf(folder, 0));
  disk->Write(Name(0), BytesOf(*memory, 0));
  WaitFor([&] { return disk->counts().dropped == 1; });
  EXPECT_EQ(ReadBack(*disk, 0), -1);
  disk->Write(Name(1), BytesOf(*memory, 1));
  WaitFor([&] { return disk->counts().written == 1; });
  EXPECT_EQ(ReadBack(*disk, 1), 1);
}

TEST(DiskTier, AFolderThatCannotBeWrittenIsRefused) {
  const Folder folder;
  std::ofstream(folder.path() / "file") << "x";
  DiskTier::Options options = OptionsIn(folder);
  options.folder = folder.path() / "file" / "kv";
  const auto disk = DiskTier::Open(options, Identity(1), Memory(1));
  ASSERT_FALSE(disk);
  EXPECT_NE(disk.error().message.find("file/kv"), std::string::npos) << disk.error().message;
}

// A pool with an index and tiers. Each block holds a hash of all tokens up to its end. With slots,
// sequences keep states: a snapshot holds a hash of the tokens that it represents.
class Machine {
 public:
  static constexpr int64_t kStates = 99;  // the group number with which Content() hashes states

  Machine(int64_t num_blocks, std::vector<AttentionSpan> groups, int64_t ram_blocks,
          std::shared_ptr<DiskTier> disk, int64_t step_blocks, int64_t num_slots = 0,
          std::shared_ptr<DiskTier> state_disk = nullptr)
      : pool(num_blocks),
        bytes(num_blocks),
        keeps_states(num_slots > 0),
        slots(std::max<int64_t>(1, num_slots)),
        slot_bytes(num_slots),
        index(pool, kTierBlock, groups, keeps_states ? &slots : nullptr),
        num_groups(static_cast<int64_t>(groups.size())),
        tiers(bytes, Memory(ram_blocks + 64), ram_blocks, std::move(disk), counters,
              step_blocks * kTierBytes),
        state_tiers(slot_bytes, Memory(ram_blocks + 64), ram_blocks, std::move(state_disk),
                    state_counters, step_blocks * kTierBytes) {
    index.UseTiers(&tiers, keeps_states ? &state_tiers : nullptr);
  }

  static FakeBytes::Block Content(std::span<const int32_t> tokens, int64_t group) {
    uint64_t hash = 1469598103934665603u + static_cast<uint64_t>(group);
    for (const int32_t token : tokens)
      hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
    return {hash, hash * 31, tokens.size()};
  }

  // Restores the blocks of a sequence, checks their bytes and computes the rest. Returns the number
  // of blocks found. `steps`: number of times that it had to wait for a step. With slots, keeps a
  // snapshot after each block whose index is in `snapshots`.
  int64_t Run(const std::vector<int32_t>& tokens, std::string_view salt = "",
              int64_t* steps = nullptr, const std::vector<int64_t>& snapshots = {}) {
    const auto full = static_cast<int64_t>(tokens.size()) / kTierBlock;
    PrefixLookup lookup;
    index.BeginStep();
    const auto next_step = [&] {
      if (steps != nullptr) ++*steps;
      tiers.WaitForDisk();
      state_tiers.WaitForDisk();
      index.BeginStep();
    };
    while (!index.Restore(tokens, full, salt, lookup, 0)) next_step();
    const PrefixIndex::Found found = index.Count(tokens, full, salt, lookup);
    const int64_t missing = num_groups * (full - found.blocks);
    while (!index.MakeRoom(lookup, found.blocks, missing, 0)) next_step();
    BlockTables tables(num_groups);
    PrefixCursor cursor = index.Start(salt);
    EXPECT_EQ(index.Match(tokens, full, salt, lookup, cursor, tables), found.blocks);
    for (int64_t group = 0; group < num_groups; ++group) {
      for (int64_t i = tables[group].num_absent(); i < found.blocks; ++i) {
        EXPECT_EQ(At(tables[group][i]), Content(Until(tokens, i), group)) << i << " of " << group;
      }
      EXPECT_TRUE(pool.Take(full - tables[group].size(), tables[group]));
      for (int64_t i = found.blocks; i < full; ++i)
        At(tables[group][i]) = Content(Until(tokens, i), group);
    }
    if (keeps_states && found.blocks > 0) {
      EXPECT_EQ(StateAt(index.UseState(cursor.last_block, 0)),
                Content(Until(tokens, found.blocks - 1), kStates));
    }
    while (cursor.num_blocks < full) {
      const int64_t place = cursor.num_blocks;
      index.Insert(std::span(tokens).subspan(static_cast<size_t>(place * kTierBlock), kTierBlock),
                   salt, cursor, tables);
      if (std::ranges::find(snapshots, place) == snapshots.end()) continue;
      HeldState held = slots.Take();
      StateAt(held.id()) = Content(Until(tokens, place), kStates);
      index.SetState(cursor.last_block, std::move(held), /*is_passing=*/false, 0);
    }
    tables.Clear();
    return found.blocks;
  }
  int64_t RunWith(const std::vector<int32_t>& tokens, const std::vector<int64_t>& snapshots) {
    return Run(tokens, "", nullptr, snapshots);
  }

  FakeBytes::Block& At(BlockId block) { return bytes.blocks[static_cast<size_t>(block)]; }
  FakeBytes::Block& StateAt(StateId slot) { return slot_bytes.blocks[static_cast<size_t>(slot)]; }
  static std::span<const int32_t> Until(const std::vector<int32_t>& tokens, int64_t block) {
    return std::span(tokens).first(static_cast<size_t>((block + 1) * kTierBlock));
  }

  BlockPool pool;
  FakeBytes bytes;
  const bool keeps_states;
  StatePool slots;
  FakeBytes slot_bytes;
  PrefixIndex index;
  const int64_t num_groups;
  TierCounters counters, state_counters;
  BlockTiers tiers, state_tiers;
};

std::vector<int32_t> TierTokens(int first, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(BlockTiers, BlocksThatLeftThePoolComeBack) {
  Machine machine(8, {{}}, 100, nullptr, 1000);
  EXPECT_EQ(machine.Run(TierTokens(0, 32)), 0);
  EXPECT_EQ(machine.Run(TierTokens(100, 32)), 0);
  EXPECT_EQ(machine.counters.ram_stored, 8u);
  EXPECT_EQ(machine.Run(TierTokens(0, 32)), 8);
  EXPECT_EQ(machine.counters.ram_loaded, 8u);
  EXPECT_EQ(machine.Run(TierTokens(0, 32), "tenant"), 0);
  EXPECT_EQ(machine.Run(TierTokens(0, 16)), 4) << "a part of it";
  EXPECT_TRUE(machine.index.Reset());
  EXPECT_EQ(machine.Run(TierTokens(0, 32)), 0);
  EXPECT_EQ(machine.Run(TierTokens(0, 32), "tenant"), 0);
}

TEST(BlockTiers, AStepMovesABoundedNumberOfBlocks) {
  Machine machine(8, {{}}, 100, nullptr, 4);
  EXPECT_EQ(machine.Run(TierTokens(0, 32)), 0);
  int64_t steps = 0;
  EXPECT_EQ(machine.Run(TierTokens(100, 32), "", &steps), 0);
  EXPECT_EQ(steps, 1) << "eight blocks leave, four in a step";
  steps = 0;
  EXPECT_EQ(machine.Run(TierTokens(0, 32), "", &steps), 8);
  EXPECT_EQ(steps, 3) << "eight come, for which eight leave";
}

TEST(BlockTiers, WithoutMemoryBlocksGoToTheDisk) {
  const Folder folder;
  {
    Machine machine(8, {{}}, 0, OpenDisk(OptionsIn(folder)), 1000);
    EXPECT_EQ(machine.Run(TierTokens(0, 32)), 0);
    EXPECT_EQ(machine.Run(TierTokens(100, 32)), 0);
    EXPECT_EQ(machine.Run(TierTokens(0, 32)), 8);
  }
  Machine machine(8, {{}}, 0, OpenDisk(OptionsIn(folder)), 1000);
  EXPECT_EQ(machine.Run(TierTokens(0, 32)), 8) << "also after a restart";
  EXPECT_EQ(machine.counters.disk_loaded, 8u);
}

// Adds up the changes that are reported.
class Heard final : public TierListener {
 public:
  using Names = std::unordered_set<TierName, TierNameHash>;

  void OnTierName(const TierName& name, int64_t group, BlockId, BlockId,
                  std::span<const int32_t> tokens, std::string_view) override {
    EXPECT_EQ(name.group, static_cast<uint32_t>(group));
    EXPECT_EQ(std::ssize(tokens), kTierBlock);
    named.insert(name);
  }
  void OnTierChange(const TierChange& change) override {
    EXPECT_TRUE(named.contains(change.name));
    Names& names = change.medium == TierMedium::kDisk ? on_disk : in_memory;
    if (!change.is_stored) {
      EXPECT_EQ(names.erase(change.name), 1u);
    } else if (!names.insert(change.name).second) {
      EXPECT_EQ(change.medium, TierMedium::kDisk) << "evicted again, and still there";
    }
  }

  Names named, in_memory, on_disk;
};

// The reported changes add up to the contents of the tiers.
TEST(BlockTiers, TellWhatTheyGainAndLose) {
  const Folder folder;
  DiskTier::Options options = OptionsIn(folder);
  options.max_bytes = 40 * TierDiskBytes(kTierBytes);
  const std::shared_ptr<DiskTier> disk = OpenDisk(options);
  Machine machine(8, {{}, {.window = 5}}, 6, disk, 1000);
  Heard heard;
  machine.tiers.set_listener(&heard);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    machine.Run(TierTokens(static_cast<int>(random() % 12) * 50, 16));
    machine.tiers.TellChanges();
    EXPECT_EQ(std::ssize(heard.in_memory), machine.counters.ram_blocks);
  }
  const auto num_files = [&] {
    const std::filesystem::recursive_directory_iterator all(folder.path());
    return std::count_if(begin(all), end(all),
                         [](const auto& entry) { return entry.path().extension() == ".kv"; });
  };
  WaitFor([&] {
    machine.tiers.TellChanges();
    return !heard.on_disk.empty() && num_files() == std::ssize(heard.on_disk);
  });
  EXPECT_GT(machine.counters.disk_loaded, 0u);
  EXPECT_LE(std::ssize(heard.on_disk), 40);
  machine.tiers.Clear(/*keeps_disk=*/false);
  machine.tiers.TellChanges();
  EXPECT_TRUE(heard.in_memory.empty() && heard.on_disk.empty());
}

TEST(BlockTiers, WhatIsInMemoryAtTheEndGoesToTheDisk) {
  const Folder folder;
  {
    Machine machine(8, {{}, {.window = 5}}, 100, OpenDisk(OptionsIn(folder)), 1000);
    EXPECT_EQ(machine.Run(TierTokens(0, 16)), 0);
    EXPECT_EQ(machine.Run(TierTokens(100, 16)), 0);
    EXPECT_GT(machine.counters.ram_stored, 0u);
    machine.index.SaveToDisk(30);
    EXPECT_EQ(machine.pool.num_free(), 8);
    EXPECT_TRUE(machine.index.CheckInvariant());
  }
  Machine machine(8, {{}, {.window = 5}}, 100, OpenDisk(OptionsIn(folder)), 1000);
  EXPECT_EQ(machine.Run(TierTokens(0, 16)), 4);
  EXPECT_EQ(machine.Run(TierTokens(100, 16)), 4);
}

TEST(BlockTiers, SnapshotsThatWereEvictedComeBack) {
  Machine machine(8, {{}}, 100, nullptr, 1000, 2);
  const std::vector<int32_t> first = TierTokens(0, 32);
  EXPECT_EQ(machine.RunWith(first, {2, 5}), 0);
  EXPECT_EQ(machine.RunWith(first, {}), 6);
  EXPECT_EQ(machine.RunWith(TierTokens(1000, 32), {1, 3, 7}), 0);
  EXPECT_EQ(machine.state_counters.ram_stored, 3u);
  EXPECT_EQ(machine.RunWith(first, {}), 6) << "not 8: no snapshot is after the last blocks";
  EXPECT_EQ(machine.state_counters.ram_loaded, 1u);
  std::vector<int32_t> other = first;
  other[18] = -1;
  EXPECT_EQ(machine.RunWith(other, {}), 3) << "the earlier snapshot";
  EXPECT_EQ(machine.RunWith(TierTokens(1000, 32), {}), 8);
}

TEST(BlockTiers, OfASnapshotWithoutItsBlocksNothingIsFound) {
  Machine machine(8, {{}}, 2, nullptr, 1000, 2);
  EXPECT_EQ(machine.RunWith(TierTokens(0, 32), {7}), 0);
  EXPECT_EQ(machine.RunWith(TierTokens(1000, 32), {}), 0);
  EXPECT_EQ(machine.state_counters.ram_stored, 1u);
  EXPECT_EQ(machine.RunWith(TierTokens(0, 32), {}), 0);
  EXPECT_EQ(machine.state_counters.ram_loaded, 0u);
}

TEST(BlockTiers, SnapshotsAreFoundOnDiskAfterARestart) {
  const Folder blocks, states;
  const std::vector<int32_t> tokens = TierTokens(0, 32);
  {
    Machine machine(8, {{}}, 100, OpenDisk(OptionsIn(blocks)), 1000, 2,
                    OpenDisk(OptionsIn(states)));
    EXPECT_EQ(machine.RunWith(tokens, {3, 7}), 0);
    machine.index.SaveToDisk(30);
  }
  Machine machine(8, {{}}, 100, OpenDisk(OptionsIn(blocks)), 1000, 2, OpenDisk(OptionsIn(states)));
  EXPECT_EQ(machine.RunWith(tokens, {}), 8);
  EXPECT_EQ(machine.state_counters.disk_loaded, 1u);
}

TEST(BlockTiers, RandomSequencesFindTheirOwnStates) {
  std::mt19937 random(5);
  for (int round = 0; round < 3; ++round) {
    const Folder blocks, states;
    DiskTier::Options options = OptionsIn(blocks), state_options = OptionsIn(states);
    options.max_bytes = 60 * 4096;
    state_options.max_bytes = 12 * 4096;
    Machine machine(24, {{}}, round == 1 ? 0 : 20, round == 0 ? nullptr : OpenDisk(options),
                    2 + 4 * round, 3, round == 0 ? nullptr : OpenDisk(state_options));
    int64_t found = 0;
    for (int i = 0; i < 300; ++i) {
      const auto count = 4 + static_cast<int>(random() % 16);
      std::vector<int32_t> tokens = TierTokens(1000 * static_cast<int>(random() % 6), 4 * count);
      if (random() % 2 == 0) tokens[tokens.size() / 2] = -5;
      found += machine.RunWith(tokens, {count - 1, count / 2, static_cast<int64_t>(random() % 4)});
      const Status index = machine.index.CheckInvariant();
      ASSERT_TRUE(index) << index.error().message;
      ASSERT_TRUE(machine.slots.CheckInvariant());
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(found, 300);
    EXPECT_GT(machine.state_counters.ram_loaded + machine.state_counters.disk_loaded, 50u) << round;
  }
}

// Blocks that are found hold the content for their tokens, in whatever order blocks are evicted and
// restored.
TEST(BlockTiers, RandomSequencesFindTheirOwnBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 6; ++round) {
    const Folder folder;
    const std::vector<AttentionSpan> groups =
        round % 3 == 0   ? std::vector<AttentionSpan>{{}}
        : round % 3 == 1 ? std::vector<AttentionSpan>{{}, {.window = 10}}
                         : std::vector<AttentionSpan>{{}, {.chunk = 16}, {.window = 5}};
    const auto num_groups = static_cast<int64_t>(groups.size());
    DiskTier::Options options = OptionsIn(folder);
    options.max_bytes = 60 * 4096;
    Machine machine(24 * num_groups, groups, round % 2 == 0 ? 30 : 0,
                    round < 2 ? nullptr : OpenDisk(options), 1 + round * 5);
    if (round < 2 && round % 2 == 1) continue;
    int64_t found = 0;
    for (int i = 0; i < 300; ++i) {
      std::vector<int32_t> tokens = TierTokens(1000 * static_cast<int>(random() % 6),
                                               4 * (4 + static_cast<int>(random() % 16)));
      if (random() % 2 == 0) tokens[tokens.size() / 2] = -5;
      found += machine.Run(tokens, random() % 4 == 0 ? "tenant" : "");
      ASSERT_TRUE(machine.index.CheckInvariant()) << machine.index.CheckInvariant().error().message;
      ASSERT_TRUE(machine.pool.CheckInvariant()) << machine.pool.CheckInvariant().error().message;
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(found, 300);
    EXPECT_GT(machine.counters.ram_loaded + machine.counters.disk_loaded, 100u) << round;
  }
}

}  // namespace
}  // namespace sluice
