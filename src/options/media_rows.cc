#include "options/rows.h"

namespace sluice::options {
namespace {

std::vector<Option> PictureRows() {
  constexpr std::string_view kGroup = "Pictures and sound";
  return RowsLike(
      {.group = kGroup,
       .commands = kEngineArguments,
       .no_effect = "text alone is served; a request with pictures or sound is refused"},
      {
          {"language-model-only", Type::kFlag, "Leave the encoders out."},
          {"limit-mm-per-prompt", Type::kJson, "Most pictures in a request."},
          {"enable-mm-embeds", Type::kFlag, "Pictures as vectors."},
          {"media-io-kwargs", Type::kJson, "How media are read."},
          {"mm-processor-kwargs", Type::kJson, "How pictures are cut."},
          {"mm-processor-cache-gb", Type::kNumber, "Memory for cut pictures."},
          {"mm-processor-cache-type", Type::kString, "Where they are kept.", "", "lru|shm"},
          {"mm-processor-device", Type::kString, "Who cuts them."},
          {"mm-hasher-algorithm", Type::kString, "Their hash.", "", "blake3|sha256|sha512"},
          {"mm-shm-cache-max-object-size-mb", Type::kInteger, "Largest of them."},
          {"mm-encoder-only", Type::kFlag, "Encode and nothing else."},
          {"mm-encoder-tp-mode", Type::kString, "How encoders are shared.", "", "data|weights"},
          {"mm-encoder-attn-backend", Type::kString, "Their attention."},
          {"mm-encoder-attn-dtype", Type::kString, "Their numbers."},
          {"mm-encoder-fp8-scale-path", Type::kString, "Their scales."},
          {"mm-encoder-fp8-scale-save-path", Type::kString, "Where scales are written."},
          {"mm-encoder-fp8-scale-save-margin", Type::kNumber, "Their margin."},
          {"mm-tensor-ipc", Type::kString, "How pictures travel.", "", "direct_rpc|torch_shm"},
          {"mm-ipc-gpu-memory-gb", Type::kNumber, "Memory for that."},
          {"mm-device-do-normalize", Type::kFlag, "Normalize on the device."},
          {"interleave-mm-strings", Type::kFlag, "Keep their place in the text."},
          {"skip-mm-profiling", Type::kFlag, "Do not measure encoders."},
          {"video-pruning-rate", Type::kNumber, "Share of frames left out."},
          {"video-pruning-method", Type::kString, "Which ones.", "", "evs|vidcom2"},
          {"trust-request-mm-kwargs", Type::kFlag, "Let requests say how pictures are cut."},
          {"allowed-local-media-path", Type::kString, "Folder of media files."},
          {"allowed-media-domains", Type::kStrings, "Hosts of media files."},
          {"default-mm-loras", Type::kJson, "Adapters of encoders."},
          {"enable-tower-connector-lora", Type::kFlag, "Adapters of encoders."},
      });
}

std::vector<Option> AdapterRows() {
  constexpr std::string_view kGroup = "Adapters and drafts";
  std::vector<Option> rows = RowsLike(
      {.group = kGroup,
       .commands = kEngineArguments,
       .refuses = "adapters are not served; merge the adapter into the checkpoint and serve that"},
      {
          {"enable-lora", Type::kFlag, "Serve adapters."},
          {"lora-modules", Type::kStrings, "Adapters and their names."},
      });
  const auto details = RowsLike(
      {.group = kGroup,
       .commands = kEngineArguments,
       .no_effect = "it matters with adapters alone, and those are not served"},
      {
          {"max-loras", Type::kInteger, "Adapters in a batch."},
          {"max-lora-rank", Type::kInteger, "Their largest rank.", "",
           "1|8|16|32|64|128|256|320|512"},
          {"lora-dtype", Type::kString, "Their numbers.", "", "auto|bfloat16|float16"},
          {"max-cpu-loras", Type::kInteger, "Adapters in memory."},
          {"max-lora-cls-labels", Type::kInteger, "Labels of theirs."},
          {"fully-sharded-loras", Type::kFlag, "Share them between devices."},
          {"lora-target-modules", Type::kStrings, "What they change."},
          {"specialize-active-lora", Type::kFlag, "A graph for each number of them."},
          {"enable-mixed-moe-lora-format", Type::kFlag, "Two layouts of experts' adapters."},
          {"enable-moe-shared-loras", Type::kFlag, "Adapters that experts share."},
      });
  const auto drafts = RowsLike(
      {.group = kGroup,
       .commands = kEngineArguments,
       .no_effect = "tokens are computed one after the other; drafts change the speed, never the "
                    "answers"},
      {
          {"speculative-config", Type::kJson, "Guess tokens ahead.", "", "", "-sc"},
          {"spec-method", Type::kString, "How."},
          {"spec-model", Type::kString, "By which model."},
          {"spec-tokens", Type::kInteger, "How many."},
          {"per-request-spec-decode-metrics", Type::kString, "Tell how many were right.", "",
           "detailed|none|summary"},
      });
  for (const auto& part : {details, drafts}) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace

std::vector<Option> MediaRows() {
  std::vector<Option> rows = PictureRows();
  const auto adapters = AdapterRows();
  rows.insert(rows.end(), adapters.begin(), adapters.end());
  return rows;
}

}  // namespace sluice::options
