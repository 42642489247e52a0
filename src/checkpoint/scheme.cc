#include "checkpoint/scheme.h"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ascii.h"
#include "base/log.h"
#include "checkpoint/quantization.h"
#include "checkpoint/schemes/settings.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

struct Reader {
  std::string_view method;
  SchemeResult (*read)(const SchemeSource& source);
};

constexpr std::array<Reader, 9> kReaders = {Reader{"modelopt", ReadModelOpt},
                                            Reader{"modelopt_fp4", ReadModelOpt},
                                            Reader{"quark", ReadQuark},
                                            Reader{"fp8", ReadFp8},
                                            Reader{"fbgemm_fp8", ReadFbgemmFp8},
                                            Reader{"compressed-tensors", ReadCompressedTensors},
                                            Reader{"mxfp4", ReadMxfp4},
                                            Reader{"gptq", ReadGptq},
                                            Reader{"awq", ReadAwq}};
constexpr const char* kMethods =
    "modelopt (FP8, NVFP4), quark (FP8, MXFP4), fp8 (blocks, per tensor), fbgemm_fp8, "
    "compressed-tensors (FP8, NVFP4, MXFP4, INT8, INT4), mxfp4 (experts of gpt-oss), gptq (INT4, "
    "INT8) and awq (INT4)";

// A method that is recognized but not supported; `why` is the end of the error message.
struct Unread {
  std::string_view method, why;
};
constexpr std::array kUnread = {
    Unread{"auto-round", "export the model in the format auto_gptq or llm_compressor instead"},
    Unread{"bitsandbytes",
           "there are no kernels for its codes (NF4, LLM.int8): serve the BF16 checkpoint, and "
           "round it while loading with --quantization"},
    Unread{"aqlm", "there are no kernels for its codebooks"},
    Unread{"hqq", "export the model with llm-compressor instead"},
    Unread{"torchao", "export the model with llm-compressor instead"},
    Unread{"gguf", "serve the safetensors checkpoint that it was converted from"}};

// Returns the element type of weights that are not quantized.
ElementType PlainTypeOf(const json::Value& config) {
  for (const json::Value* object : {&config, config.Find("text_config")}) {
    if (object == nullptr || !object->is_object()) continue;
    for (const char* key : {"dtype", "torch_dtype"}) {
      const json::Value* value = object->Find(key);
      if (value == nullptr || !value->is_string()) continue;
      const std::string& name = value->as_string();
      if (name.ends_with("bfloat16")) return ElementType::kBF16;
      if (name.ends_with("float16")) return ElementType::kF16;
      if (name.ends_with("float32")) return ElementType::kF32;
    }
  }
  return ElementType::kF32;  // transformers has the same default.
}

// Returns the method that a block names; "" if it names none.
std::string MethodOf(const QuantizationSettings& settings) {
  for (const char* key : {"quant_method", "method"}) {
    const json::Value* value = settings.block.Find(key);
    if (value != nullptr && value->is_string()) return AsciiLower(value->as_string());
  }
  // ModelOpt's sidecar names the producer instead; older versions have neither field.
  const json::Value* producer = settings.block.Find("producer");
  const json::Value* name = producer == nullptr ? nullptr : producer->Find("name");
  if (name != nullptr && name->is_string()) return AsciiLower(name->as_string());
  if (settings.where == "hf_quant_config.json" && settings.block.Find("quantization") != nullptr)
    return "modelopt";
  // Early sidecars of GPTQ and AWQ have no quant_method.
  if (settings.where == "quantize_config.json" && settings.block.Find("desc_act") != nullptr)
    return "gptq";
  if (settings.where == "quant_config.json" && settings.block.Find("w_bit") != nullptr)
    return "awq";
  // Early compression_config blocks have no quant_method.
  if (settings.block.Find("config_groups") != nullptr) return "compressed-tensors";
  return "";
}

SchemeResult ReadScheme(SchemeSource source) {
  if (!source.config && !source.sidecar) return PlainScheme(source.plain_type);
  const QuantizationSettings& first = source.config ? *source.config : *source.sidecar;
  // A quant_method that is not a string is an error: a guess from the other keys could be wrong.
  RETURN_IF_ERROR(JsonFields(first.block, first.where + ".").String("quant_method"));
  const std::string method = MethodOf(first);
  // ModelOpt's config.json and sidecar are read together. For other methods only config.json
  // counts.
  if (source.config && source.sidecar) {
    const std::string other = MethodOf(*source.sidecar);
    if (!other.empty() && other.starts_with("modelopt") != method.starts_with("modelopt")) {
      return Fail(ErrorCode::kInvalidData,
                  fmt::format("{} says '{}' and {} says '{}'; remove the wrong one",
                              source.config->where, method, source.sidecar->where, other),
                  source.sidecar->where);
    }
    if (!method.starts_with("modelopt")) source.sidecar.reset();
  }
  for (const Reader& reader : kReaders) {
    if (reader.method == method) return reader.read(source);
  }
  for (const Unread& unread : kUnread) {
    if (unread.method != method) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} has quant_method '{}', which is not supported: {}", first.where,
                            method, unread.why),
                "quant_method");
  }
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format("{} {}; supported are {}", first.where,
                  method.empty() ? "names no quant_method"
                                 : fmt::format("has quant_method '{}', which is not supported",
                                               ShortName(method)),
                  kMethods),
      "quant_method");
}

bool IsGoodScale(float value) {
  return std::isfinite(value) && value > 0;
}

struct ByteRange {
  uint64_t offset = 0, size = 0;
};

// Returns the byte range of rows [first, first + count) in the layer's first tensor.
ByteRange BytesOfRows(const StoredLinear& linear, int64_t first, int64_t count) {
  const StoredMatrix& matrix = linear.matrix;
  const auto begin = static_cast<uint64_t>(matrix.data - linear.tensors.front()->bytes().data());
  if (matrix.transposed) return {begin, static_cast<uint64_t>(DataBytes(matrix))};
  const int64_t row_bytes = matrix.cols * BitsPerElement(matrix.format.type) / 8;
  return {begin + static_cast<uint64_t>(first * row_bytes),
          static_cast<uint64_t>(count * row_bytes)};
}

// Returns the quantization block of config.json. DeepSeek V4, an FP8 model, stores the type of its
// experts outside this block.
Result<std::optional<QuantizationSettings>> ReadBlock(const json::Value& config) {
  constexpr const char* kExperts = "expert_dtype";
  ASSIGN_OR_RETURN(auto block, FindQuantizationBlock(config));
  const json::Value* type = config.Find(kExperts);
  if (!block || type == nullptr || type->is_null()) return block;
  const json::Value* const method = block->block.Find("quant_method");
  if (method != nullptr && method->is_string() && method->as_string() == "fp8" &&
      block->block.Find(kExperts) == nullptr)
    block->block.Set(kExperts, json::Value(*type));
  return block;
}

}  // namespace

Result<std::shared_ptr<const QuantizationScheme>> LoadScheme(const std::filesystem::path& folder,
                                                             const json::Value& config) {
  SchemeSource source;
  source.plain_type = PlainTypeOf(config);
  ASSIGN_OR_RETURN(source.config, ReadBlock(config));
  ASSIGN_OR_RETURN(source.sidecar, FindQuantizationSidecar(folder));
  auto scheme = ReadScheme(std::move(source));
  if (!scheme) return tl::unexpected<Error>(std::move(scheme).error().In(folder.string()));
  return scheme;
}

Result<std::shared_ptr<const QuantizationScheme>> ParseScheme(const json::Value& config) {
  SchemeSource source;
  source.plain_type = PlainTypeOf(config);
  ASSIGN_OR_RETURN(source.config, ReadBlock(config));
  return ReadScheme(std::move(source));
}

Status CheckQuantizationOption(const QuantizationScheme& scheme, std::string_view option) {
  const std::string wanted = AsciiLower(option);
  const std::string_view method = scheme.Method();
  // "modelopt" matches every format of ModelOpt.
  const bool fits =
      wanted == method || (wanted == "modelopt" && method.starts_with("modelopt")) ||
      (wanted == "compressed_tensors" && method == "compressed-tensors") ||
      // Other names for the same checkpoints. Some of them are names of kernels.
      (method == "gptq" && (wanted == "gptq_marlin" || wanted == "auto_gptq")) ||
      (method == "fbgemm_fp8" && wanted == "fp8") ||
      (method == "mxfp4" && wanted == "gpt_oss_mxfp4") ||
      (method == "awq" && (wanted == "awq_marlin" || wanted == "auto_awq" || wanted == "cpu_awq"));
  if (fits) return {};
  const std::string found = method.empty() ? fmt::format("is not quantized ({})", scheme.Name())
                                           : fmt::format("is {} ({})", method, scheme.Name());
  const std::string advice =
      method.empty() ? fmt::format("Omit the option, or round the weights while loading: {}",
                                   LoadQuantizationNames())
                     : fmt::format("Omit the option, or use {}", method);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--quantization {}: the checkpoint {}. {}", option, found, advice),
              "quantization");
}

void StoredLinear::FetchRows(int64_t first, int64_t count) const {
  const ByteRange bytes = BytesOfRows(*this, first, count);
  tensors.front()->Fetch(bytes.offset, bytes.size);
}

void StoredLinear::ReleaseRows(int64_t first, int64_t count) const {
  const ByteRange bytes = BytesOfRows(*this, first, count);
  tensors.front()->Release(bytes.offset, bytes.size);
}

Status CheckScales(const StoredLinear& linear) {
  const StoredMatrix& matrix = linear.matrix;
  const DataFormat& format = matrix.format;
  if (format.scale_layout == DataFormat::ScaleLayout::kNone) return {};
  const int64_t count = ScaleCount(matrix);
  const auto bad = [&](int64_t index, std::string_view found) {
    const TensorInfo& info = *linear.tensors[1]->info;
    return Fail(
        ErrorCode::kInvalidData,
        fmt::format("tensor '{}' in {} has the scale {} at element {}, expected a finite "
                    "number above 0",
                    info.name, linear.tensors[1]->file->path().filename().string(), found, index),
        info.name);
  };
  const auto* bytes = reinterpret_cast<const uint8_t*>(matrix.scales);
  if (format.scale_type == ElementType::kF8E8M0) {
    const void* nan = std::memchr(bytes, 0xFF, static_cast<size_t>(count));
    if (nan != nullptr) return bad(static_cast<const uint8_t*>(nan) - bytes, "NaN");
    return {};
  }
  for (int64_t i = 0; i < count; ++i) {
    if (format.scale_type == ElementType::kF8E4M3) {
      // A scale of 0 is valid for a group of zeros.
      if ((bytes[i] & 0x7F) == 0x7F) return bad(i, "NaN");
      if (bytes[i] > 0x80) return bad(i, "below 0");
      continue;
    }
    const float value = StoredNumber(matrix.scales, format.scale_type, i);
    // INT4 quantizers use a negative scale where it makes the error smaller; small F16 scales may
    // be 0.
    if (format.type == ElementType::kInt4 && std::isfinite(value)) continue;
    if (!IsGoodScale(value)) return bad(i, fmt::format("{}", value));
  }
  return {};
}

}  // namespace sluice
