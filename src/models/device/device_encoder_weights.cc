#include "models/device/device_encoder_weights.h"

#include <fmt/format.h>

namespace sluice {
std::vector<std::vector<float>> EncoderRopeTables(const EncoderSpec& spec) {
  return {spec.rope_frequencies, spec.window_frequencies};
}

Result<DeviceWeightLayout> LayOutEncoder(const EncoderSpec& spec, const ParameterList& list,
                                         const std::vector<DataFormat>& formats, bool keeps_apart) {
  for (size_t i = 0; i < formats.size(); ++i) {
    if (!formats[i].has_input_order) continue;
    const std::string& name = list.matrices[i].parts.front().name;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: an encoder's INT4 weights whose groups reorder their inputs "
                            "(act-order) are not computed on devices; serve it with --device cpu",
                            name),
                name);
  }
  return DeviceWeightLayout::For(EncoderRopeTables(spec), list, formats, keeps_apart);
}

}  // namespace sluice
