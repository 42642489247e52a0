#include "engine/kv_tiers.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/hex.h"
#include "base/json.h"
#include "base/list_folder.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/plan_text.h"
#include "engine/shared_memory.h"
#include "hardware/memory.h"
#include "kernels/dispatch.h"
#include "models/parallel_model.h"
#include "tensor/buffer.h"

namespace sluice {
namespace {

// Maximum bytes of the pieces in the disk's write queue, and of the pieces that were requested from
// the disk and not taken yet. kLeastBlocksOnWay blocks and kLeastSnapshotsOnWay snapshots are
// always allowed.
constexpr int64_t kWayBytes = int64_t{64} << 20;
constexpr int64_t kLeastBlocksOnWay = 16;
constexpr int64_t kLeastSnapshotsOnWay = 2;
// Folder of the snapshots on disk, next to the folders of blocks.
constexpr const char* kSnapshotFolder = "states";

// The settings for one kind of piece (blocks or snapshots): the size of a piece, and its share of
// memory and disk.
struct TierShare {
  const char* what = "";
  int64_t piece_bytes = 0;  // 0: no data of this kind is kept
  int64_t ram_bytes = 0;    // per engine
  int64_t disk_bytes = 0;
  int64_t disk_bytes_per_second = 0;
  // Maximum number of pieces in the disk's write queue, and of pieces that were requested from the
  // disk and not taken yet; 0: there is no disk tier.
  int64_t on_way = 0;

  int64_t ram_pieces() const { return ram_bytes / ByteBlocks::Padded(piece_bytes); }
  // Pieces in memory per engine: those of the RAM tier, and those in the disk's write queue.
  int64_t pieces() const { return ram_pieces() + on_way; }
};

TierShare TierShareOf(const EnginePlan& plan, const char* what, int64_t piece_bytes,
                      int64_t least) {
  const OffloadConfig& offload = plan.config.offload;
  const int64_t kinds = plan.tier_state_bytes > 0 ? 2 : 1;
  TierShare share{.what = what, .piece_bytes = piece_bytes};
  if (piece_bytes == 0) return share;
  share.ram_bytes = offload.ram_bytes / plan.num_engines / kinds;
  if (!offload.has_disk()) return share;
  share.disk_bytes = offload.disk_bytes / kinds;
  // 0 means no limit.
  if (offload.disk_bytes_per_second > 0)
    share.disk_bytes_per_second = std::max<int64_t>(1, offload.disk_bytes_per_second / kinds);
  share.on_way = std::max(least, kWayBytes / piece_bytes);
  return share;
}

TierShare BlockShareOf(const EnginePlan& plan) {
  return TierShareOf(plan, "a block", plan.tier_block_bytes, kLeastBlocksOnWay);
}

TierShare SnapshotShareOf(const EnginePlan& plan) {
  return TierShareOf(plan, "a snapshot of states", plan.tier_state_bytes, kLeastSnapshotsOnWay);
}

Result<std::shared_ptr<ByteBlocks>> Allocate(const TierShare& share, int64_t count) {
  const int64_t bytes = count * ByteBlocks::Padded(share.piece_bytes);
  ASSIGN_OR_RETURN(Buffer buffer,
                   Buffer::Allocate(static_cast<size_t>(bytes), "the KV blocks beyond the cache"));
  const auto owner = std::make_shared<const Buffer>(std::move(buffer));
  return ByteBlocks::Divide({owner->data(), owner->size_bytes()}, owner, share.piece_bytes);
}

Status Refuse(const EnginePlan& plan, const std::string& why) {
  const char* const option =
      plan.config.offload.ram_bytes > 0 ? "kv-offloading-size" : "kv-offloading-path";
  return Fail(ErrorCode::kUnsupported, fmt::format("--{}: {}", option, why), option);
}

// Identifies the build: the build id that the linker wrote into the program or, without one, the
// size and modification time of the program's file.
std::string BuildId() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_NOTE) continue;
          const char* next = std::bit_cast<const char*>(info->dlpi_addr + header.p_vaddr);
          const char* const end = next + header.p_memsz;
          while (next + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, next, sizeof(note));
            const char* const name = next + sizeof(note);
            const char* const description = name + (note.n_namesz + 3) / 4 * 4;
            if (note.n_type == NT_GNU_BUILD_ID)
              static_cast<std::string*>(data)->assign(description, note.n_descsz);
            next = description + (note.n_descsz + 3) / 4 * 4;
          }
        }
        return 1;  // the first object is the program itself
      },
      &id);
  if (!id.empty()) return HexDigits({reinterpret_cast<const uint8_t*>(id.data()), id.size()});
  struct stat info {};
  ::stat("/proc/self/exe", &info);
  return fmt::format("{} {}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

bool HoldsWeights(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".safetensors" || extension == ".gguf" || extension == ".json" ||
         extension == ".bin";
}

// Appends the head of a file, which has the names and offsets of its tensors, and samples of the
// rest.
void AppendSamples(const std::filesystem::path& path, int64_t size, std::string& text) {
  constexpr int64_t kHead = int64_t{1} << 20;
  constexpr int64_t kSample = 4096;
  constexpr int64_t kSamples = 64;
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  const auto append = [&](int64_t offset, int64_t count) {
    bytes.assign(static_cast<size_t>(count), '\0');
    file.clear();
    file.seekg(offset);
    file.read(bytes.data(), count);
    bytes.resize(static_cast<size_t>(file.gcount()));
    text += bytes;
  };
  append(0, std::min(size, kHead));
  for (int64_t i = 0; i < kSamples && size > kHead; ++i)
    append(kHead + (size - kHead) / kSamples * i, kSample);
}

PieceCounts CountsOf(const TierCounters& counters) {
  return {.ram_stored = counters.ram_stored,
          .ram_loaded = counters.ram_loaded,
          .disk_loaded = counters.disk_loaded,
          .dropped = counters.dropped};
}

}  // namespace

int64_t MostTierBytes(const OffloadConfig& offload, int num_engines) {
  return offload.ram_bytes + (offload.has_disk() ? 2 * (num_engines + 1) * kWayBytes : 0);
}

Status PlanTiers(const ModelConfig& model, const MemoryLimits& host, EnginePlan& plan) {
  const OffloadConfig& offload = plan.config.offload;
  if (!offload.is_given()) return {};
  if (!plan.config.enable_prefix_caching) {
    return Refuse(plan,
                  "blocks are found by their prefix; omit --no-enable-prefix-caching or, for an "
                  "encoder, this option");
  }
  plan.tier_block_bytes = plan.kv_bytes_per_block;
  plan.tier_state_bytes = plan.state_bytes_per_slot;
  // On devices, the plan's sizes are those of the largest rank. The same applies to one of several
  // processes.
  const bool are_processes = plan.tensor_ranks * plan.pipeline_stages > plan.ranks.num_ranks();
  if (are_processes || (plan.on_device() && plan.ranks.num_ranks() > 1)) {
    ParallelOptions parallel;
    parallel.tensor_size = plan.tensor_ranks;
    parallel.num_stages = plan.pipeline_stages;
    parallel.kv_groups = plan.kv_groups;
    const auto sum = [&](CachePiece piece) {
      const std::vector<int64_t> shares =
          ShareBytes(piece, model.spec, ModelOptionsOf(plan), parallel);
      return std::accumulate(shares.begin(), shares.end(), int64_t{0});
    };
    plan.tier_block_bytes = sum(CachePiece::kBlock);
    plan.tier_state_bytes = sum(CachePiece::kState);
  }
  plan.tier_bytes = 0;
  for (const TierShare& share : {BlockShareOf(plan), SnapshotShareOf(plan)}) {
    if (share.piece_bytes == 0) continue;
    if (offload.ram_bytes > 0 && share.ram_pieces() == 0) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--kv-offloading-size: {} are too small for {} of {} in each of {} "
                      "engines{}; raise it",
                      MemoryText(offload.ram_bytes), share.what, MemoryText(share.piece_bytes),
                      plan.num_engines, plan.tier_state_bytes > 0 ? ", in half of it" : ""),
          "kv-offloading-size");
    }
    const int64_t pieces = plan.num_engines * share.pieces() + share.on_way;
    plan.tier_bytes += pieces * ByteBlocks::Padded(share.piece_bytes);
  }
  if (plan.on_device() && !IsShared(plan.memory)) {
    if (plan.tier_bytes < host.available_bytes) return {};
    return Fail(
        ErrorCode::kResourceExhausted,
        fmt::format("--kv-offloading-size: the tiers of the KV cache take {} of the host's memory, "
                    "but only {} are free{}; lower it",
                    MemoryText(plan.tier_bytes), MemoryText(host.available_bytes), LimitNote(host)),
        "kv-offloading-size");
  }
  if (plan.taken_bytes() <= plan.memory.available_bytes) return {};
  return Fail(
      ErrorCode::kResourceExhausted,
      fmt::format("--kv-offloading-size: the tiers of the KV cache take {}, but beside "
                  "weights and workspace{} {} of memory are free{}; lower it{}",
                  MemoryText(plan.tier_bytes),
                  plan.kv_bytes > 0 ? fmt::format(", {} of cache and {} for requests",
                                                  MemoryText(plan.kv_bytes + plan.state_bytes),
                                                  MemoryText(plan.request_bytes))
                                    : "",
                  MemoryText(std::max<int64_t>(
                      0, plan.memory.available_bytes - plan.taken_bytes() + plan.tier_bytes)),
                  LimitNote(plan.memory), plan.kv_bytes > 0 ? ", or --kv-cache-memory-bytes" : ""),
      "kv-offloading-size");
}

Result<TierIdentity> TierIdentityOf(const EnginePlan& plan, const ModelConfig& model,
                                    const std::filesystem::path& folder) {
  const ModelOptions options = ModelOptionsOf(plan);
  std::string text = fmt::format(
      "build {}\nisa {}\nmodel {} {}\ndtype {} kv {} activations {}\nblock {} {} groups {} {}\n"
      "device {} ranks {} {}\n",
      BuildId(), kernels::IsaName(kernels::CurrentIsa()), model.architecture,
      json::Write(model.raw), DtypeName(plan.dtype), DtypeName(plan.kv_type),
      static_cast<int>(options.activation_format), plan.config.block_size, plan.tier_block_bytes,
      plan.kv_groups.num_groups(), plan.kv_groups.layers_per_group, plan.device_name,
      plan.tensor_ranks, plan.pipeline_stages);
  text += fmt::format("overrides {}\nquantization {} {}\ndummy {} {}\n",
                      json::Write(plan.config.config_overrides),
                      plan.config.load_quantization.weights, plan.config.load_quantization.head,
                      plan.config.dummy_weights, plan.config.dummy_weights ? plan.config.seed : 0);
  // See DecoderSpec::FitRope.
  text += fmt::format("long rope {}\n", !model.spec.long_rope_table.empty() &&
                                            plan.max_model_len > model.spec.short_context);
  text += fmt::format("states {}\n", plan.tier_state_bytes);
  for (const AttentionSpan& span : plan.kv_groups.spans)
    text += fmt::format("span {} {}\n", span.chunk, span.window);
  for (const KvGroups::Place& place : plan.kv_groups.places)
    text += fmt::format("layer {} {}\n", place.group, place.slot);
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const std::filesystem::path& path : ListFolder(folder, error)) {
    if (HoldsWeights(path)) files.push_back(path);
  }
  if (error) {
    return Fail(ErrorCode::kNotFound, fmt::format("{}: {}", folder.string(), error.message()));
  }
  std::ranges::sort(files);
  for (const std::filesystem::path& path : files) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) continue;
    text += fmt::format("file {} {} {}.{}\n", path.filename().string(), info.st_size,
                        info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    AppendSamples(path, info.st_size, text);
  }
  return IdentityOfText(text);
}

Status DiskTiers::Use(const TierIdentity& identity) const {
  for (const auto& disk : {blocks, snapshots}) {
    if (disk == nullptr) continue;
    if (Status used = disk->Use(identity); !used) {
      Rest();
      return used;
    }
  }
  return {};
}

void DiskTiers::Rest() const {
  for (const auto& disk : {blocks, snapshots}) {
    if (disk != nullptr) disk->Rest();
  }
}

Result<DiskTiers> OpenDiskTiers(const EnginePlan& plan, const ModelConfig& model) {
  const OffloadConfig& offload = plan.config.offload;
  DiskTiers disks;
  if (!offload.has_disk()) return disks;
  ASSIGN_OR_RETURN(const TierIdentity identity,
                   TierIdentityOf(plan, model, plan.config.model_folder));
  const auto open = [&](const TierShare& share, const std::filesystem::path& folder,
                        std::shared_ptr<DiskTier>& disk) -> Status {
    if (share.piece_bytes == 0) return {};
    ASSIGN_OR_RETURN(auto memory, Allocate(share, share.on_way));
    auto opened = DiskTier::Open({.folder = folder,
                                  .block_bytes = share.piece_bytes,
                                  .max_bytes = share.disk_bytes,
                                  .write_bytes_per_second = share.disk_bytes_per_second,
                                  .max_queued = share.on_way,
                                  .max_loaded = share.on_way},
                                 identity, std::move(memory));
    if (!opened) {
      Error failed = std::move(opened).error();
      failed.param = "kv-offloading-path";
      return tl::unexpected(std::move(failed).In("--kv-offloading-path"));
    }
    disk = *std::move(opened);
    return {};
  };
  RETURN_IF_ERROR(open(BlockShareOf(plan), offload.folder, disks.blocks));
  RETURN_IF_ERROR(open(SnapshotShareOf(plan), offload.folder / kSnapshotFolder, disks.snapshots));
  int64_t used = disks.blocks->counts().used_bytes;
  if (disks.snapshots != nullptr) used += disks.snapshots->counts().used_bytes;
  LOG_INFO("engine", "KV blocks on disk: {} of at most {} in {}", MemoryText(used),
           MemoryText(offload.disk_bytes), offload.folder.string());
  return disks;
}

class KvTiers::Pieces final : public BlockBytes {
 public:
  Pieces(CacheBytes& bytes, CachePiece piece) : bytes_(bytes), piece_(piece) {}

  int64_t bytes_per_block() const override { return bytes_.BytesOf(piece_); }
  void Read(BlockId place, std::byte* bytes) const override { bytes_.Read(piece_, place, bytes); }
  void Write(BlockId place, const std::byte* bytes) override { bytes_.Write(piece_, place, bytes); }

 private:
  CacheBytes& bytes_;
  const CachePiece piece_;
};

KvTiers::KvTiers() = default;
KvTiers::~KvTiers() = default;

Result<std::unique_ptr<KvTiers>> KvTiers::Create(const EnginePlan& plan, CacheBytes& bytes,
                                                 const DiskTiers& disks, KvTierCounters& counters) {
  std::unique_ptr<KvTiers> made(new KvTiers());
  const auto create = [](const TierShare& share, BlockBytes& pieces, std::shared_ptr<DiskTier> disk,
                         TierCounters& counts, std::unique_ptr<BlockTiers>& tiers) -> Status {
    if (pieces.bytes_per_block() != share.piece_bytes) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("{} has {} bytes, and {} in the plan", share.what,
                              pieces.bytes_per_block(), share.piece_bytes));
    }
    ASSIGN_OR_RETURN(auto memory, Allocate(share, share.pieces()));
    tiers = std::make_unique<BlockTiers>(pieces, std::move(memory), share.ram_pieces(),
                                         std::move(disk), counts);
    return {};
  };
  made->block_bytes_ = std::make_unique<Pieces>(bytes, CachePiece::kBlock);
  RETURN_IF_ERROR(create(BlockShareOf(plan), *made->block_bytes_, disks.blocks, counters.blocks,
                         made->blocks_));
  if (plan.tier_state_bytes == 0) return made;
  made->snapshot_bytes_ = std::make_unique<Pieces>(bytes, CachePiece::kState);
  RETURN_IF_ERROR(create(SnapshotShareOf(plan), *made->snapshot_bytes_, disks.snapshots,
                         counters.snapshots, made->snapshots_));
  return made;
}

TierCounts TierCountsOf(const EnginePlan& plan, const KvTierCounters& counters,
                        const DiskTiers& disks) {
  TierCounts counts;
  const OffloadConfig& offload = plan.config.offload;
  counts.has_ram = offload.ram_bytes > 0;
  counts.has_disk = disks.blocks != nullptr;
  counts.has_snapshots = plan.tier_state_bytes > 0;
  counts.bytes_per_block = plan.tier_block_bytes;
  counts.blocks = CountsOf(counters.blocks);
  counts.snapshots = CountsOf(counters.snapshots);
  counts.ram_bytes = counters.blocks.ram_blocks * plan.tier_block_bytes +
                     counters.snapshots.ram_blocks * plan.tier_state_bytes;
  counts.ram_capacity = offload.ram_bytes / plan.num_engines;
  if (!counts.has_disk) return counts;
  counts.disk_capacity = offload.disk_bytes;
  counts.disk_blocks = disks.blocks->counts();
  if (disks.snapshots != nullptr) counts.disk_snapshots = disks.snapshots->counts();
  return counts;
}

}  // namespace sluice
