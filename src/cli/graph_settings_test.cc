#include "cli/graph_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "options/sources.h"

namespace sluice::cli {
namespace {

using options::Dialect;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<GraphConfig> Graphs(const std::vector<std::string>& words, Dialect dialect = Dialect::kVllm,
                           bool built_for_gpus = false) {
  auto resolved = options::Resolve(words, {}, options::kServe, dialect);
  EXPECT_TRUE(resolved) << (resolved ? "" : resolved.error().message);
  return GraphsOf(resolved ? resolved->settings : options::Settings(), built_for_gpus);
}

std::string ErrorOf(const std::vector<std::string>& words) {
  const auto graphs = Graphs(words);
  EXPECT_FALSE(graphs);
  return graphs ? "" : graphs.error().message;
}

TEST(GraphSettings, OffUntilAskedFor) {
  for (const Dialect dialect : {Dialect::kSluice, Dialect::kVllm, Dialect::kTrtllm}) {
    const auto graphs = Graphs({"m"}, dialect);
    ASSERT_TRUE(graphs);
    EXPECT_FALSE(graphs->records);
    EXPECT_THAT(graphs->sizes, IsEmpty());
    EXPECT_EQ(graphs->largest, std::nullopt);
    EXPECT_EQ(graphs->pads, dialect != Dialect::kTrtllm);
    EXPECT_TRUE(Graphs({"m", "--cuda-graphs"}, dialect)->records);
  }
}

// vllm and trtllm-serve capture graphs by default.
TEST(GraphSettings, OnUnderNamesWhoseDefaultTheyAre) {
  const auto records = [](std::vector<std::string> words, Dialect dialect) {
    words.insert(words.begin(), "m");
    return Graphs(words, dialect, /*built_for_gpus=*/true)->records;
  };
  EXPECT_FALSE(records({}, Dialect::kSluice));
  for (const Dialect dialect : {Dialect::kVllm, Dialect::kTrtllm}) {
    EXPECT_TRUE(records({}, dialect));
    EXPECT_TRUE(records({"--device", "cuda"}, dialect));
    EXPECT_TRUE(records({"--device", "hip"}, dialect));
    EXPECT_FALSE(records({"--device", "cpu"}, dialect));
    EXPECT_FALSE(records({"--device", "emulated"}, dialect));
    EXPECT_FALSE(records({"--no-cuda-graphs"}, dialect));
  }
  EXPECT_FALSE(records({"--enforce-eager"}, Dialect::kVllm));
  EXPECT_FALSE(records({"--set", "cuda_graph_config=null"}, Dialect::kTrtllm));
  EXPECT_TRUE(records({"--device", "hip", "-tp", "2", "-pp", "2"}, Dialect::kVllm));
  EXPECT_FALSE(records({"-cc", R"({"cudagraph_mode":"NONE"})"}, Dialect::kVllm));
}

// If the plan has no graphs, it logs a warning only if graphs were requested explicitly.
TEST(GraphSettings, TellsADefaultFromAWish) {
  const auto is_default = [](std::vector<std::string> words, Dialect dialect = Dialect::kVllm) {
    words.insert(words.begin(), "m");
    return Graphs(words, dialect, /*built_for_gpus=*/true)->is_default;
  };
  EXPECT_TRUE(is_default({}));
  EXPECT_TRUE(is_default({}, Dialect::kTrtllm));
  EXPECT_TRUE(is_default({"-tp", "2", "-cc", R"({"custom_ops":["+rms_norm"]})"}));
  EXPECT_FALSE(is_default({}, Dialect::kSluice));
  EXPECT_FALSE(is_default({"--cuda-graphs"}));
  EXPECT_FALSE(is_default({"--cudagraph-capture-sizes", "4"}));
  EXPECT_FALSE(is_default({"-cc", R"({"cudagraph_mode":"FULL_AND_PIECEWISE"})"}));
}

TEST(GraphSettings, TheWordsOfVllm) {
  for (const char* on :
       {R"({"full_cuda_graph":true})", R"({"cudagraph_mode":"FULL_DECODE_ONLY"})",
        R"({"cudagraph_mode":"FULL_AND_PIECEWISE"})", R"({"use_cudagraph":true})",
        R"({"cudagraph_capture_sizes":[1,2]})", R"({"max_cudagraph_capture_size":4})"}) {
    EXPECT_TRUE(Graphs({"m", "-cc", on})->records) << on;
    EXPECT_FALSE(Graphs({"m", "-cc", on, "--enforce-eager"})->records) << on;
    EXPECT_FALSE(Graphs({"m", "-cc", on, "--no-cuda-graphs"})->records) << on;
  }
  for (const char* off : {"3", R"({"custom_ops":["+rms_norm"]})", R"({"cudagraph_mode":null})",
                          R"({"cudagraph_mode":"NONE","cudagraph_capture_sizes":[1]})",
                          R"({"full_cuda_graph":false})", R"({"max_cudagraph_capture_size":0})"}) {
    EXPECT_FALSE(Graphs({"m", "-cc", off})->records) << off;
  }
  const auto sizes = Graphs({"m", "--cudagraph-capture-sizes", "1", "2", "16"});
  EXPECT_TRUE(sizes->records);
  EXPECT_THAT(sizes->sizes, ElementsAre(1, 2, 16));
  EXPECT_EQ(Graphs({"m", "--max-cudagraph-capture-size", "64"})->largest, 64);
  EXPECT_THAT(Graphs({"m", "-cc.cudagraph_capture_sizes", "[4,8]"})->sizes, ElementsAre(4, 8));
  // --cuda-graph-sizes is the older option.
  EXPECT_EQ(Graphs({"m", "--cuda-graph-sizes", "256"})->largest, 256);
  EXPECT_THAT(Graphs({"m", "--cuda-graph-sizes", "1", "256"})->sizes, ElementsAre(1, 256));
}

TEST(GraphSettings, TheWordsOfTrtllm) {
  const auto set = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"m", "--set"});
    return *Graphs(words, Dialect::kTrtllm);
  };
  const GraphConfig padded =
      set({"cuda_graph_config.enable_padding=true", "cuda_graph_config.max_batch_size=1024"});
  EXPECT_TRUE(padded.records);
  EXPECT_TRUE(padded.pads);
  EXPECT_EQ(padded.largest, 1024);
  EXPECT_THAT(padded.sizes, IsEmpty());
  const GraphConfig sized = set({"cuda_graph_config={\"batch_sizes\": [1, 4]}"});
  EXPECT_TRUE(sized.records);
  EXPECT_FALSE(sized.pads);
  EXPECT_THAT(sized.sizes, ElementsAre(1, 4));
  EXPECT_TRUE(set({"cuda_graph_config={}"}).records);
  EXPECT_FALSE(set({"cuda_graph_config=null"}).records);
  const GraphConfig chosen = set({"cuda_graph_config.max_batch_size=0"});
  EXPECT_TRUE(chosen.records);
  EXPECT_EQ(chosen.largest, std::nullopt);
  EXPECT_TRUE(set({"use_cuda_graph=true"}).records);
  EXPECT_FALSE(set({"use_cuda_graph=false", "cuda_graph_padding_enabled=true"}).records);
}

TEST(GraphSettings, MistakesNameTheirOption) {
  EXPECT_THAT(ErrorOf({"m", "--cudagraph-capture-sizes", "1", "two"}),
              AllOf(HasSubstr("--cudagraph-capture-sizes"), HasSubstr("found two")));
  EXPECT_THAT(ErrorOf({"m", "--cudagraph-capture-sizes", "0"}), HasSubstr("[1, 65536]"));
  EXPECT_THAT(ErrorOf({"m", "-cc", R"({"cudagraph_mode":"SOME"})"}),
              AllOf(HasSubstr("cudagraph_mode"), HasSubstr("FULL_DECODE_ONLY"),
                    HasSubstr("found \"SOME\"")));
  EXPECT_THAT(ErrorOf({"m", "-cc", R"({"cudagraph_capture_sizes":[1.5]})"}),
              HasSubstr("cudagraph_capture_sizes"));
  EXPECT_THAT(ErrorOf({"m", "-cc", R"({"cudagraph_capture_sizes":8})"}), HasSubstr("a list"));
  EXPECT_THAT(ErrorOf({"m", "-cc", R"({"full_cuda_graph":"yes"})"}), HasSubstr("true or false"));
  EXPECT_THAT(ErrorOf({"m", "-cc", R"({"max_cudagraph_capture_size":-1})"}),
              HasSubstr("max_cudagraph_capture_size"));
}

}  // namespace
}  // namespace sluice::cli
