#include "models/program/program.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/source_path_testing.h"
#include "models/encoder/encoder_spec.h"
#include "models/model_config.h"
#include "models/program/build_decoder.h"
#include "models/weights.h"

namespace sluice {
namespace {

// The memory of products is planned from the program, so the program must refer to every matrix.
TEST(ProgramTest, TheWidestInputIsThatOfTheWidestMatrix) {
  const ModelOptions options;
  int num_decoders = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourcePath("tests/data/checkpoints"))) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const auto config = LoadModelConfig(entry.path());
    if (!config || IsEncoder(config->architecture)) continue;
    DecoderWeights weights;
    const ParameterList list = ListParameters(config->spec, weights, {});
    int64_t widest = 0;
    for (const MatrixParameter& matrix : list.matrices) {
      if (matrix.target == &weights.embedding || matrix.target == &weights.layer_embeddings)
        continue;
      widest = std::max(widest, matrix.cols);
    }
    const program::Program program =
        program::BuildDecoder({.spec = config->spec, .options = options, .weights = weights});
    EXPECT_EQ(program::WidestInput(program), widest) << entry.path();
    ++num_decoders;
  }
  EXPECT_GT(num_decoders, 100);
}

}  // namespace
}  // namespace sluice
