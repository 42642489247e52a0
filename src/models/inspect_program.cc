#include "models/inspect_program.h"

#include <map>

#include "kernels/linear.h"
#include "models/encoder/encoder_classifier.h"
#include "models/encoder/encoder_spec.h"
#include "models/encoder/encoder_weights.h"
#include "models/program/build_decoder.h"
#include "models/program/build_encoder.h"
#include "models/program/print.h"
#include "models/weight_loader.h"
#include "models/weights.h"

namespace sluice {
namespace {

// A program whose weights are not loaded, and the bytes that they will take.
struct UnfilledProgram {
  DecoderWeights decoder;
  EncoderWeights encoder;
  program::Program program;
  std::map<const kernels::PackedMatrix*, int64_t> bytes;

  void Count(const ParameterList& list, const QuantizationScheme& scheme, ElementType type) {
    for (const MatrixParameter& matrix : list.matrices) {
      bytes[matrix.target] = kernels::PackedBytes(PlannedMatrixFormat(matrix, scheme, type),
                                                  matrix.rows(), matrix.cols);
    }
  }
  program::MatrixBytes BytesOf() const {
    return [this](const kernels::PackedMatrix& matrix) { return bytes.at(&matrix); };
  }
};

Status Build(const ModelConfig& config, const ModelOptions& options, const RankPlace& place,
             UnfilledProgram& unfilled) {
  if (!IsEncoder(config.architecture)) {
    const ParameterList list = ListParameters(config.spec, unfilled.decoder, place);
    unfilled.Count(list, *config.scheme, options.compute_type);
    unfilled.program = program::BuildDecoder(
        {.spec = config.spec, .options = options, .place = place, .weights = unfilled.decoder});
    return {};
  }
  ASSIGN_OR_RETURN(const EncoderSpec spec, ReadEncoderSpec(config.raw));
  const int64_t num_scores = NumScores(config);
  unfilled.Count(ListEncoderParameters(spec, num_scores, /*prefix=*/"", unfilled.encoder),
                 *config.scheme, options.compute_type);
  unfilled.program = program::BuildEncoder({.spec = spec,
                                            .options = options,
                                            .classifies = num_scores > 0,
                                            .weights = unfilled.encoder});
  return {};
}

int64_t KvBytes(const ModelOptions& options) {
  return BitsPerElement(options.kv_type) / 8;
}

}  // namespace

Result<std::string> ProgramText(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place) {
  UnfilledProgram unfilled;
  RETURN_IF_ERROR(Build(config, options, place, unfilled));
  return program::Print(unfilled.program, unfilled.BytesOf(), KvBytes(options));
}

Result<json::Value> ProgramJson(const ModelConfig& config, const ModelOptions& options,
                                const RankPlace& place) {
  UnfilledProgram unfilled;
  RETURN_IF_ERROR(Build(config, options, place, unfilled));
  return program::ToJson(unfilled.program, unfilled.BytesOf(), KvBytes(options));
}

}  // namespace sluice
