#include "options/compilation.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"

namespace sluice::options {
namespace {

constexpr std::string_view kNoCompiler = "nothing is compiled at run time";
constexpr std::string_view kNoGraphs =
    "a step is started without a graph; there is none to capture";
constexpr std::string_view kFused = "the kernels are fused already";
constexpr std::string_view kOneDevice = "there is one device and nothing to exchange";

constexpr CompilationKey kKeys[] = {
    {"mode", "level", kNoCompiler},
    {"backend", "", kNoCompiler},
    {"custom_ops", "", "every operator is our own, whatever the list turns on or off"},
    {"splitting_ops", "", kNoGraphs},
    {"cudagraph_mode", "full_cuda_graph", kNoGraphs},
    {"use_cudagraph", "", kNoGraphs},
    {"cudagraph_capture_sizes", "cuda_graph_sizes", kNoGraphs},
    {"max_cudagraph_capture_size", "", kNoGraphs},
    {"cudagraph_num_of_warmups", "", kNoGraphs},
    {"cudagraph_copy_inputs", "", kNoGraphs},
    {"cudagraph_specialize_lora", "", kNoGraphs},
    {"cudagraph_mm_encoder", "", kNoGraphs},
    {"encoder_cudagraph_token_budgets", "", kNoGraphs},
    {"encoder_cudagraph_max_images_per_batch", "", kNoGraphs},
    {"use_inductor", "", kNoCompiler},
    {"use_inductor_graph_partition", "", kNoCompiler},
    {"inductor_compile_config", "", kNoCompiler},
    {"inductor_passes", "", kNoCompiler},
    {"ir_enable_torch_wrap", "", kNoCompiler},
    {"compile_mm_encoder", "", kNoCompiler},
    {"compile_sizes", "", kNoCompiler},
    {"compile_ranges_split_points", "compile_ranges_endpoints", kNoCompiler},
    {"compile_cache_save_format", "", kNoCompiler},
    {"cache_dir", "", kNoCompiler},
    {"debug_dump_path", "", kNoCompiler},
    {"local_cache_dir", "", kNoCompiler},
    {"fast_moe_cold_start", "", kNoCompiler},
    {"dynamic_shapes_config", "", kNoCompiler},
    {"static_all_moe_layers", "", kNoCompiler},
    {"pass_config.fuse_norm_quant", "pass_config.enable_fusion", kFused},
    {"pass_config.fuse_act_quant", "", kFused},
    {"pass_config.fuse_attn_quant", "pass_config.enable_attn_fusion", kFused},
    {"pass_config.eliminate_noops", "pass_config.enable_noop", kFused},
    {"pass_config.fuse_act_padding", "", kFused},
    {"pass_config.fuse_rope_kvcache", "", kFused},
    {"pass_config.rope_kvcache_fusion_max_token_num", "", kFused},
    {"pass_config.enable_qk_norm_rope_fusion", "", kFused},
    {"pass_config.enable_sp", "pass_config.enable_sequence_parallelism", kOneDevice},
    {"pass_config.sp_min_token_num", "", kOneDevice},
    {"pass_config.fuse_gemm_comms", "pass_config.enable_async_tp", kOneDevice},
    {"pass_config.fuse_allreduce_rms", "pass_config.enable_fi_allreduce_fusion", kOneDevice},
    {"pass_config.fi_allreduce_fusion_max_size_mb", "pass_config.fi_allreduce_fusion_max_token_num",
     kOneDevice},
    {"pass_config.dump_graph_stages", "", kNoCompiler},
};

void AddNote(const std::string& path, std::vector<Note>& notes) {
  const std::string what = "--compilation-config " + path;
  for (const CompilationKey& key : kKeys) {
    if (path == key.key) {
      notes.push_back({Note::Kind::kNoEffect, what, std::string(key.here)});
      return;
    }
    if (path == key.old) {
      notes.push_back({Note::Kind::kNoEffect, what, fmt::format("now {}; {}", key.key, key.here)});
      return;
    }
  }
  notes.push_back({Note::Kind::kWarning, what, "is no key that vLLM has; it is left out"});
}

}  // namespace

std::span<const CompilationKey> CompilationKeys() {
  return kKeys;
}

std::vector<Note> CompilationNotes(const Settings& settings) {
  std::vector<Note> notes;
  const auto text = settings.Text("compilation-config");
  if (!text) return notes;
  const auto object = json::Parse(*text);
  if (!object || !object->is_object()) return notes;
  for (const auto& [key, value] : object->as_object()) {
    if (key == "pass_config" && value.is_object()) {
      for (const auto& [inner, ignored] : value.as_object())
        AddNote(fmt::format("{}.{}", key, inner), notes);
    } else {
      AddNote(key, notes);
    }
  }
  return notes;
}

}  // namespace sluice::options
