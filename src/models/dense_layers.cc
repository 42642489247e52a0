#include "models/dense_layers.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/safetensors.h"
#include "kernels/linear.h"
#include "tensor/stored_number.h"

namespace sluice {
namespace {

constexpr DataFormat kFormat{.type = ElementType::kF32};

int64_t Widest(std::span<const DenseModule> modules) {
  int64_t widest = 0;
  for (const DenseModule& module : modules)
    widest = std::max({widest, module.in_features, module.out_features});
  return widest;
}

float Activated(DenseActivation activation, float value) {
  const double x = value;
  switch (activation) {
    case DenseActivation::kIdentity: break;
    case DenseActivation::kTanh: return static_cast<float>(std::tanh(x));
    case DenseActivation::kRelu: return std::isnan(value) ? value : std::max(value, 0.0f);
    case DenseActivation::kGelu:
      return static_cast<float>(x / 2 * (1 + std::erf(x / std::numbers::sqrt2)));
    case DenseActivation::kSigmoid: return static_cast<float>(1 / (1 + std::exp(-x)));
    case DenseActivation::kSilu: return static_cast<float>(x / (1 + std::exp(-x)));
  }
  return value;
}

// Returns the tensor with this name. kInvalidData if it is missing, has another shape, or is not
// F32, F16 or BF16.
Result<const TensorInfo*> FindTensor(const SafetensorsFile& file, const std::string& name,
                                     const std::vector<int64_t>& shape) {
  const auto found = std::ranges::find(file.tensors(), name, &TensorInfo::name);
  const bool is_there = found != file.tensors().end();
  const auto is_plain = [](ElementType type) {
    return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
  };
  if (is_there && found->shape == shape && is_plain(found->type)) return &*found;
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{}: tensor '{}': expected F32, F16 or BF16 of shape {}, found {}",
                          file.path().string(), name, ShapeText(shape),
                          is_there ? fmt::format("{} of shape {}", ElementTypeName(found->type),
                                                 ShapeText(found->shape))
                                   : "none"),
              name);
}

tl::unexpected<Error> NotFinite(const SafetensorsFile& file, const std::string& name) {
  return Fail(ErrorCode::kInvalidData,
              fmt::format("{}: tensor '{}' contains NaN or infinity; download the file again, or "
                          "load it anyway with --allow-nonfinite",
                          file.path().string(), name),
              name);
}

}  // namespace

int64_t DenseLayers::WeightBytes(std::span<const DenseModule> modules) {
  int64_t bytes = 0;
  for (const DenseModule& module : modules) {
    bytes += kernels::PackedBytes(kFormat, module.out_features, module.in_features);
    if (module.has_bias) bytes += module.out_features * int64_t{sizeof(float)};
  }
  return bytes;
}

int64_t DenseLayers::WorkspaceBytes(std::span<const DenseModule> modules, int64_t max_rows,
                                    int num_threads) {
  if (modules.empty()) return 0;
  const int64_t widest = Widest(modules);
  return 2 * max_rows * widest * int64_t{sizeof(float)} +
         kernels::LinearScratchBytes(num_threads, max_rows, widest);
}

Result<DenseLayers::Layer> DenseLayers::LoadLayer(ThreadPool& pool,
                                                  const std::filesystem::path& folder,
                                                  const DenseModule& module,
                                                  const ModelOptions& options) {
  const int64_t out = module.out_features, in = module.in_features;
  Layer layer;
  layer.activation = module.activation;
  ASSIGN_OR_RETURN(layer.weight,
                   kernels::AllocatePacked(kFormat, out, in, "the weights of a Dense module"));
  if (module.has_bias) layer.bias.resize(static_cast<size_t>(out));
  if (options.load_format == ModelOptions::LoadFormat::kDummy) return layer;
  ASSIGN_OR_RETURN(const SafetensorsFile file,
                   SafetensorsFile::Open(folder / module.folder / "model.safetensors"));
  const std::string weight_name = "linear.weight", bias_name = "linear.bias";
  ASSIGN_OR_RETURN(const TensorInfo* weight, FindTensor(file, weight_name, {out, in}));
  const bool is_finite =
      kernels::PackRows(pool, layer.weight, 0,
                        PlainMatrix(file.Bytes(*weight).data(), weight->type, out, in), 0, out);
  if (!is_finite && !options.allow_nonfinite) return NotFinite(file, weight_name);
  if (!module.has_bias) {
    if (std::ranges::find(file.tensors(), bias_name, &TensorInfo::name) == file.tensors().end())
      return layer;
    return Fail(ErrorCode::kInvalidData,
                fmt::format("{}: tensor '{}': expected none, since the module's config.json has "
                            "bias false; found one",
                            file.path().string(), bias_name),
                bias_name);
  }
  ASSIGN_OR_RETURN(const TensorInfo* bias, FindTensor(file, bias_name, {out}));
  for (int64_t i = 0; i < out; ++i)
    layer.bias[static_cast<size_t>(i)] = StoredNumber(file.Bytes(*bias).data(), bias->type, i);
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!options.allow_nonfinite && !std::ranges::all_of(layer.bias, finite))
    return NotFinite(file, bias_name);
  return layer;
}

Result<std::shared_ptr<const DenseLayers>> DenseLayers::Load(ThreadPool& pool,
                                                             const std::filesystem::path& folder,
                                                             std::span<const DenseModule> modules,
                                                             const ModelOptions& options) {
  auto layers = std::make_shared<DenseLayers>();
  layers->widest_ = Widest(modules);
  for (const DenseModule& module : modules) {
    ASSIGN_OR_RETURN(Layer layer, LoadLayer(pool, folder, module, options));
    layers->layers_.push_back(std::move(layer));
  }
  return layers;
}

const float* DenseLayers::Apply(ThreadPool& pool, int64_t rows, float* vectors,
                                float* scratch) const {
  if (rows == 0) return vectors;
  for (const Layer& layer : layers_) {
    const int64_t in = layer.weight.cols, out = layer.weight.rows;
    kernels::Linear(pool, layer.weight, {.data = vectors, .rows = rows, .cols = in, .stride = in},
                    scratch, out, layer.bias.empty() ? nullptr : layer.bias.data());
    if (layer.activation != DenseActivation::kIdentity) {
      pool.ParallelFor(rows * out, 256, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) scratch[i] = Activated(layer.activation, scratch[i]);
      });
    }
    std::swap(vectors, scratch);
  }
  return vectors;
}

}  // namespace sluice
