#include "quantize/quantize_checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/write_error.h"
#include "checkpoint/scheme.h"
#include "models/model_config.h"
#include "models/weight_loader.h"
#include "quantize/calibrator.h"
#include "quantize/quantize_plan.h"
#include "tensor/encode_rows.h"
#include "tensor/float4.h"
#include "tensor/float8.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// Number of elements that are decoded, encoded and written at a time.
constexpr int64_t kChunkNumbers = int64_t{4} << 20;
constexpr int64_t kCopyBytes = int64_t{16} << 20;

// A folder that the destructor removes, unless MoveTo has moved it. It is locked, so no other run
// can use it at the same time.
class PartialFolder {
 public:
  static Result<PartialFolder> Create(fs::path path) {
    std::error_code error;
    fs::create_directories(path, error);
    const auto cannot = [&] {
      return Fail(WriteErrorCode(error.value(), ErrorCode::kUnavailable),
                  fmt::format("{}: cannot make this folder: {}", path.string(), error.message()),
                  path.string());
    };
    if (error) return cannot();
    const int lock = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) {
      error = std::error_code(errno, std::generic_category());
      return cannot();
    }
    PartialFolder folder({}, lock);
    // On a file system without locks, every run is allowed.
    const bool is_held = ::flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (is_held || !folder.IsAt(path)) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("{}: another run works in this folder: wait for its end, or name "
                              "another folder to write",
                              path.string()),
                  path.string());
    }
    folder.path_ = std::move(path);
    RETURN_IF_ERROR(folder.Clear());
    return folder;
  }
  PartialFolder(PartialFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}
  PartialFolder& operator=(PartialFolder&&) = delete;
  ~PartialFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
    if (lock_ >= 0) ::close(lock_);
  }

  const fs::path& path() const { return path_; }
  Status MoveTo(const fs::path& target) {
    std::error_code error;
    fs::rename(path_, target, error);
    if (error) {
      return Fail(ErrorCode::kUnavailable,
                  fmt::format("cannot rename {} to {}: {}", path_.string(), target.string(),
                              error.message()),
                  target.string());
    }
    path_.clear();
    return {};
  }

 private:
  PartialFolder(fs::path path, int lock) : path_(std::move(path)), lock_(lock) {}

  // Whether the locked folder is still at `path`. A run that ends removes its folder.
  bool IsAt(const fs::path& path) const {
    struct stat locked, named;
    return ::fstat(lock_, &locked) == 0 && ::stat(path.c_str(), &named) == 0 &&
           locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
  }
  // Removes the files that an interrupted run left.
  Status Clear() const {
    std::error_code error;
    for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
         entry.increment(error)) {
      fs::remove_all(entry->path(), error);
      if (error) break;
    }
    if (!error) return {};
    return Fail(ErrorCode::kUnavailable,
                fmt::format("{}: cannot empty this folder: {}", path_.string(), error.message()),
                path_.string());
  }

  fs::path path_;
  int lock_ = -1;  // descriptor of the folder
};

// Decodes rows [begin, begin + rows) of a module to contiguous F32.
void DecodeRows(ThreadPool& pool, const QuantizedModule& module, int64_t begin, int64_t rows,
                float* out) {
  pool.ParallelFor(rows, 4, [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; ++row) {
      DecodeStoredRow(module.source, module.first_row + begin + row,
                      out + row * module.source.cols);
    }
  });
}

float AmaxOf(ThreadPool& pool, const float* values, int64_t count) {
  constexpr int64_t kPart = 1 << 16;
  std::mutex mutex;
  float amax = 0;
  pool.ParallelFor((count + kPart - 1) / kPart, 1, [&](int64_t begin, int64_t end) {
    float largest = 0;
    for (int64_t i = begin * kPart; i < std::min(count, end * kPart); ++i)
      largest = std::max(largest, std::fabs(values[i]));
    const std::lock_guard lock(mutex);
    amax = std::max(amax, largest);
  });
  return amax;
}

// Quantizes and writes the layers of a plan.
class Quantizer {
 public:
  Quantizer(ThreadPool& pool, const QuantizeOptions& options, SafetensorsWriter& writer,
            const std::function<void(int64_t)>& done)
      : pool_(pool),
        options_(options),
        target_(*options.target),
        format_(target_.format),
        exact_target_(target_),
        writer_(writer),
        done_(done) {
    exact_target_.rounds_quotient = false;
  }

  // `statistics`: null if nothing was measured.
  Status WriteLayer(const QuantizedLayer& layer, const LayerStatistics* statistics) {
    for (const QuantizedGroup& group : layer.groups) {
      RETURN_IF_ERROR(WriteGroup(group));
      if (!target_.input_scale.empty())
        RETURN_IF_ERROR(WriteInputScales(layer, group, *statistics));
    }
    if (options_.fp8_kv_cache) return WriteKvScales(layer, *statistics);
    return {};
  }

  int64_t modules() const { return modules_; }
  double relative_error() const { return norm_ > 0 ? std::sqrt(error_ / norm_) : 0; }

 private:
  bool shares_scale(const QuantizedModule& module) const {
    return format_.has_second_scale || module.expert >= 0;
  }

  // The tools round in the element type of the model, but ModelOpt rounds fused expert tensors in
  // F32.
  const QuantizeTarget& TargetOf(const QuantizedModule& module) const {
    const bool is_bf16 = module.source.format.type == ElementType::kBF16;
    return is_bf16 && module.expert < 0 ? target_ : exact_target_;
  }

  int64_t ChunkRows(int64_t cols) const {
    const int64_t unit = std::max<int64_t>(format_.block_rows, 16);
    return std::max<int64_t>(1, kChunkNumbers / cols / unit) * unit;
  }

  float ModuleAmax(const QuantizedModule& module) {
    const int64_t cols = module.source.cols;
    const int64_t chunk = ChunkRows(cols);
    float amax = 0;
    for (int64_t row = 0; row < module.rows; row += chunk) {
      const int64_t rows = std::min(chunk, module.rows - row);
      values_.resize(static_cast<size_t>(rows * cols));
      DecodeRows(pool_, module, row, rows, values_.data());
      amax = std::max(amax, AmaxOf(pool_, values_.data(), rows * cols));
    }
    return amax;
  }

  Status WriteGroup(const QuantizedGroup& group) {
    const bool has_tensor_scale =
        format_.has_second_scale || format_.scale_layout == DataFormat::ScaleLayout::kPerTensor;
    std::vector<float> amaxes(group.modules.size());
    if (has_tensor_scale) {
      for (size_t i = 0; i < amaxes.size(); ++i) amaxes[i] = ModuleAmax(group.modules[i]);
    }
    const float shared = *std::max_element(amaxes.begin(), amaxes.end());
    for (size_t i = 0; i < group.modules.size(); ++i) {
      const QuantizedModule& module = group.modules[i];
      const float scale =
          TensorScale(target_.encoding(), shares_scale(module) ? shared : amaxes[i]);
      RETURN_IF_ERROR(WriteModule(module, scale));
      ++modules_;
      if (module.expert > 0) continue;
      if (format_.scale_layout == DataFormat::ScaleLayout::kPerTensor)
        RETURN_IF_ERROR(
            WriteScalar(TensorNameOf(module, target_.scale), format_.scale_type, scale));
      if (format_.has_second_scale) {
        RETURN_IF_ERROR(
            WriteScalar(TensorNameOf(module, target_.second_scale), ElementType::kF32, scale));
      }
    }
    return {};
  }

  Status WriteModule(const QuantizedModule& module, float tensor_scale) {
    const int64_t cols = module.source.cols;
    const int64_t row_code_bytes = cols * BitsPerElement(format_.type) / 8;
    // An expert that is written transposed is encoded as a whole.
    const int64_t chunk = module.expert >= 0 ? module.rows : ChunkRows(cols);
    const std::string data_name = DataNameOf(target_, module);
    const std::string scale_name = TensorNameOf(module, target_.scale);
    int64_t scale_offset = 0;
    for (int64_t row = 0; row < module.rows; row += chunk) {
      const int64_t rows = std::min(chunk, module.rows - row);
      values_.resize(static_cast<size_t>(rows * cols));
      DecodeRows(pool_, module, row, rows, values_.data());
      const int64_t scale_row_bytes = Encode(TargetOf(module), rows, cols, tensor_scale);
      AddError(rows, cols, tensor_scale);
      const int64_t scale_bytes = ScaleRows(rows) * scale_row_bytes;
      if (module.expert >= 0) {
        RETURN_IF_ERROR(WriteTransposed(data_name, module, codes_, rows, row_code_bytes));
        if (scale_row_bytes > 0)
          RETURN_IF_ERROR(WriteTransposed(scale_name, module, scales_, rows, scale_row_bytes));
      } else {
        RETURN_IF_ERROR(writer_.Write(data_name, row * row_code_bytes,
                                      {codes_.data(), static_cast<size_t>(rows * row_code_bytes)}));
        if (scale_bytes > 0) {
          RETURN_IF_ERROR(writer_.Write(scale_name, scale_offset,
                                        {scales_.data(), static_cast<size_t>(scale_bytes)}));
        }
        scale_offset += scale_bytes;
      }
      done_(rows * cols * BitsPerElement(module.source.format.type) / 8);
    }
    Release(module);
    return {};
  }

  // The number of scale rows for `rows` rows of codes.
  int64_t ScaleRows(int64_t rows) const {
    return format_.scale_layout == DataFormat::ScaleLayout::kPerBlock
               ? (rows + format_.block_rows - 1) / format_.block_rows
               : rows;
  }

  // Encodes values_ to codes_ and scales_. Returns the number of bytes in a row of scales.
  int64_t Encode(const QuantizeTarget& target, int64_t rows, int64_t cols, float tensor_scale) {
    int64_t scale_bytes = 0;
    switch (format_.scale_layout) {
      case DataFormat::ScaleLayout::kPerRow:
        scale_bytes = BitsPerElement(format_.scale_type) / 8;
        break;
      case DataFormat::ScaleLayout::kPerGroup: scale_bytes = cols / format_.group_size; break;
      case DataFormat::ScaleLayout::kPerBlock:
        scale_bytes = (cols + format_.group_size - 1) / format_.group_size *
                      BitsPerElement(format_.scale_type) / 8;
        break;
      default: break;
    }
    const int64_t code_bytes = cols * BitsPerElement(format_.type) / 8;
    codes_.resize(static_cast<size_t>(rows * code_bytes));
    scales_.resize(static_cast<size_t>(ScaleRows(rows) * scale_bytes));
    const int64_t unit = std::max<int64_t>(format_.block_rows, 1);
    pool_.ParallelFor((rows + unit - 1) / unit, 1, [&](int64_t from, int64_t to) {
      const int64_t begin = from * unit, end = std::min(rows, to * unit);
      EncodeRows(target.encoding(), options_.group_scales, values_.data() + begin * cols,
                 end - begin, cols, tensor_scale, codes_.data() + begin * code_bytes,
                 scales_.data() + begin / unit * scale_bytes);
    });
    return scale_bytes;
  }

  // Adds the difference between the written values and the source to the accumulated error.
  void AddError(int64_t rows, int64_t cols, float tensor_scale) {
    StoredMatrix written{.format = format_,
                         .rows = rows,
                         .cols = cols,
                         .data = codes_.data(),
                         .scales = scales_.data()};
    std::array<std::byte, 4> scalar{};
    if (format_.scale_layout == DataFormat::ScaleLayout::kPerTensor) {
      WriteNumber(format_.scale_type, tensor_scale, scalar.data());
      written.scales = scalar.data();
    }
    if (format_.has_second_scale) written.second_scale = tensor_scale;
    std::mutex mutex;
    pool_.ParallelFor(rows, 4, [&](int64_t from, int64_t to) {
      std::vector<float> decoded(static_cast<size_t>(cols));
      double error = 0, norm = 0;
      for (int64_t row = from; row < to; ++row) {
        DecodeStoredRow(written, row, decoded.data());
        for (int64_t k = 0; k < cols; ++k) {
          const double value = values_[static_cast<size_t>(row * cols + k)];
          error +=
              (decoded[static_cast<size_t>(k)] - value) * (decoded[static_cast<size_t>(k)] - value);
          norm += value * value;
        }
      }
      const std::lock_guard lock(mutex);
      error_ += error;
      norm_ += norm;
    });
  }

  // Writes rows [rows, row_bytes] transposed, as the expert's part [row_bytes, rows] of the fused
  // tensor.
  Status WriteTransposed(const std::string& name, const QuantizedModule& module,
                         const std::vector<std::byte>& data, int64_t rows, int64_t row_bytes) {
    transposed_.resize(static_cast<size_t>(rows * row_bytes));
    pool_.ParallelFor(row_bytes, 16, [&](int64_t from, int64_t to) {
      for (int64_t k = from; k < to; ++k) {
        for (int64_t row = 0; row < rows; ++row) {
          transposed_[static_cast<size_t>(k * rows + row)] =
              data[static_cast<size_t>(row * row_bytes + k)];
        }
      }
    });
    return writer_.Write(name, module.expert * rows * row_bytes, transposed_);
  }

  static void Release(const QuantizedModule& module) {
    if (module.source.transposed) return;
    const int64_t row_bytes = module.source.cols * BitsPerElement(module.source.format.type) / 8;
    const auto begin = static_cast<uint64_t>(module.source.data - module.tensor->bytes().data());
    module.tensor->Release(begin + static_cast<uint64_t>(module.first_row * row_bytes),
                           static_cast<uint64_t>(module.rows * row_bytes));
  }

  Status WriteScalar(const std::string& name, ElementType type, float value) {
    std::array<std::byte, 4> bytes{};
    const int64_t size = WriteNumber(type, value, bytes.data());
    return writer_.Write(name, 0, {bytes.data(), static_cast<size_t>(size)});
  }

  // Returns the statistics of a group's inputs. An expert that no token chose has no statistics of
  // its own, so it gets those of all experts in the layer.
  InputStatistics StatisticsOf(const QuantizedLayer& layer, const QuantizedGroup& group,
                               const LayerStatistics& statistics) const {
    InputStatistics own;
    const auto add = [&](const QuantizedGroup& from) {
      for (const kernels::PackedMatrix* matrix : from.inputs) {
        const auto found = statistics.inputs.find(matrix);
        if (found != statistics.inputs.end()) own.Merge(found->second);
      }
    };
    add(group);
    if (!own.empty()) return own;
    for (const QuantizedGroup& other : layer.groups) {
      if (other.cols == group.cols && other.modules.size() == group.modules.size()) add(other);
    }
    return own;
  }

  Status WriteInputScales(const QuantizedLayer& layer, const QuantizedGroup& group,
                          const LayerStatistics& statistics) {
    const float amax = StatisticsOf(layer, group, statistics).Percentile(options_.input_percentile);
    const bool is_nvfp4 = target_.activations.kind == ActivationFormat::Kind::kNvfp4;
    const float scale =
        amax > 0 ? (is_nvfp4 ? amax / (6 * kFloat8E4M3Max) : amax / kFloat8E4M3Max) : 1;
    const ElementType type =
        format_.scale_type == ElementType::kBF16 ? ElementType::kBF16 : ElementType::kF32;
    for (const QuantizedModule& module : group.modules) {
      if (module.expert > 0) continue;
      RETURN_IF_ERROR(WriteScalar(TensorNameOf(module, target_.input_scale), type, scale));
    }
    return {};
  }

  Status WriteKvScales(const QuantizedLayer& layer, const LayerStatistics& statistics) {
    const KvScaleNames names = KvScaleNamesOf(target_);
    float key = statistics.keys.amax(), value = statistics.values.amax();
    if (names.merged) key = value = std::max(key, value);
    const auto scale = [](float amax) { return amax > 0 ? amax / kFloat8E4M3Max : 1; };
    RETURN_IF_ERROR(WriteScalar(layer.attention + std::string(names.key), names.type, scale(key)));
    return WriteScalar(layer.attention + std::string(names.value), names.type, scale(value));
  }

  ThreadPool& pool_;
  const QuantizeOptions& options_;
  const QuantizeTarget& target_;
  const DataFormat& format_;
  QuantizeTarget exact_target_;  // like target_, but does not round the quotient first
  SafetensorsWriter& writer_;
  const std::function<void(int64_t)>& done_;
  std::vector<float> values_;
  std::vector<std::byte> codes_, scales_, transposed_;
  int64_t modules_ = 0;
  double error_ = 0, norm_ = 0;
};

Status CopyTensor(const StoredTensor& tensor, SafetensorsWriter& writer) {
  const auto bytes = tensor.bytes();
  for (size_t begin = 0; begin < bytes.size(); begin += kCopyBytes) {
    const size_t count = std::min(static_cast<size_t>(kCopyBytes), bytes.size() - begin);
    RETURN_IF_ERROR(
        writer.Write(tensor.info->name, static_cast<int64_t>(begin), bytes.subspan(begin, count)));
    tensor.Release(begin, count);
  }
  return {};
}

// Returns the files that are neither weights nor configurations of weights, such as tokenizers and
// templates.
Result<std::vector<fs::path>> FindOtherFiles(const fs::path& source) {
  constexpr std::array<std::string_view, 7> kWeights = {".safetensors", ".bin",  ".pt", ".pth",
                                                        ".gguf",        ".onnx", ".h5"};
  // Tokenizers and templates are smaller; a larger file must be weights with another name.
  constexpr uintmax_t kLargestCopied = uintmax_t{1} << 30;
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(source, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::string extension = entry->path().extension().string();
    if (name == "config.json" || name == "hf_quant_config.json" || name.ends_with(".index.json") ||
        name.starts_with(".") ||
        std::find(kWeights.begin(), kWeights.end(), extension) != kWeights.end()) {
      continue;
    }
    std::error_code ignored;
    if (entry->is_symlink(ignored) && !fs::exists(entry->path(), ignored)) {
      return Fail(
          ErrorCode::kInvalidData,
          fmt::format("{} is a link to {}, which cannot be followed; download it again, or "
                      "remove the link to do without the file",
                      entry->path().string(), fs::read_symlink(entry->path(), ignored).string()),
          entry->path().string());
    }
    if (!entry->is_regular_file(ignored)) continue;
    if (const uintmax_t size = entry->file_size(ignored); size > kLargestCopied) {
      LOG_WARNING("quantize", "{} is not copied: {} bytes are no tokenizer or template",
                  entry->path().string(), size);
      continue;
    }
    files.push_back(entry->path());
  }
  if (!error) return files;
  return Fail(ErrorCode::kUnavailable,
              fmt::format("cannot list the files of {}: {}", source.string(), error.message()),
              source.string());
}

Status CopyFiles(const std::vector<fs::path>& files, const fs::path& target) {
  for (const fs::path& file : files) {
    const fs::path copy = target / file.filename();
    std::error_code error;
    fs::copy_file(file, copy, error);
    if (error) {
      return Fail(
          WriteErrorCode(error.value(), ErrorCode::kUnavailable),
          fmt::format("cannot copy {} to {}: {}", file.string(), target.string(), error.message()),
          file.string());
    }
    // The source may be read-only, but the user must be able to write the copy.
    fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add, error);
  }
  return {};
}

Status WriteText(const fs::path& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text << '\n';
  file.close();
  if (file) return {};
  const int number = errno;
  return Fail(WriteErrorCode(number, ErrorCode::kUnavailable),
              fmt::format("cannot write {}: {}", path.string(), std::strerror(number)),
              path.string());
}

// The configuration is written last, because no program loads a folder without config.json.
Status WriteConfiguration(const fs::path& folder, const ModelConfig& config,
                          const QuantizePlan& plan, const QuantizeOptions& options) {
  const QuantizeConfig written =
      WriteQuantizeConfig(*options.target, options.fp8_kv_cache, plan.plain_modules);
  if (!written.sidecar.is_null())
    RETURN_IF_ERROR(WriteText(folder / "hf_quant_config.json", json::Write(written.sidecar)));
  json::Value value = config.raw;
  value.Set("quantization_config", written.config_block);
  return WriteText(folder / "config.json", json::Write(value));
}

Status CheckRequest(const fs::path& out, const ModelConfig& config,
                    const QuantizeOptions& options) {
  if (out.empty())
    return Fail(ErrorCode::kInvalidArgument, "the folder to write has no name", "output");
  std::error_code error;
  // A dangling link counts as an existing folder, because the new folder could not be renamed to
  // its path at the end.
  const fs::file_type there = fs::symlink_status(out, error).type();
  if (there != fs::file_type::not_found && there != fs::file_type::none) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} exists; nothing is overwritten: name another folder or remove it",
                            out.string()),
                "output");
  }
  if (!config.scheme->Method().empty()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the checkpoint is already quantized ({}); start from its BF16, F16 or "
                            "F32 weights",
                            config.scheme->Name()),
                "model");
  }
  const LayerSpec* layer = config.spec.FirstMoeLayer();
  if (layer != nullptr && layer->moe->activation == Activation::kClampedSwiglu) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("the experts of {} have alternating rows of gate and up, which none of these "
                    "formats supports; serve its MXFP4 checkpoint, or the BF16 weights",
                    config.architecture),
        "model");
  }
  if (std::ranges::any_of(config.spec.layers,
                          [](const LayerSpec& one) { return one.attention.latent.has_value(); })) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} has latent attention, whose kv_b_proj is divided among heads by its "
                    "values: quantized checkpoints of it are not written; serve it with "
                    "--quantization fp8, or a published quantized one",
                    config.architecture),
        "model");
  }
  if (config.spec.KeepsStates()) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("layers of {} keep states of sequences, and their projections cannot be "
                    "quantized in a checkpoint; round them while loading, with --quantization",
                    config.architecture),
        "model");
  }
  if (!options.calibration.empty() &&
      (!config.spec.HasUniformHeads() || config.spec.layer_embeddings.width > 0 ||
       (layer != nullptr && layer->moe->own_norms))) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format(
            "layers of {} share keys and values, or differ in their heads or norms, "
            "which calibration does not support; choose a --to format that needs no calibration",
            config.architecture),
        "calibration");
  }
  if (options.calibration.empty() &&
      (options.target->needs_calibration() || options.fp8_kv_cache)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} stores how large {} get: give a text with --calibrate FILE",
                            options.fp8_kv_cache ? "--kv-cache fp8"
                                                 : fmt::format("--to {}", options.target->name),
                            options.fp8_kv_cache ? "keys and values" : "the inputs of its layers"),
                "calibrate");
  }
  return {};
}

}  // namespace

Result<QuantizeReport> QuantizeCheckpoint(ThreadPool& pool, const fs::path& source,
                                          const fs::path& target, const QuantizeOptions& options,
                                          const QuantizeProgress& progress) {
  // A trailing slash would put "<out>.partial" inside the folder, so it is removed.
  fs::path out = target.lexically_normal();
  if (!out.has_filename()) out = out.parent_path();
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(source));
  RETURN_IF_ERROR(CheckRequest(out, config, options));
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(source));
  const DecoderSpec& spec = config.spec;
  DecoderWeights weights;
  const ParameterList list = ListParameters(spec, weights);
  RETURN_IF_ERROR(CheckParameters(list, checkpoint, *config.scheme, spec));
  ASSIGN_OR_RETURN(const QuantizePlan plan, PlanQuantization(config, checkpoint, list, options));
  ASSIGN_OR_RETURN(const std::vector<fs::path> other_files, FindOtherFiles(source));

  fs::path partial_path = out;
  partial_path += ".partial";
  ASSIGN_OR_RETURN(PartialFolder partial, PartialFolder::Create(partial_path));
  ASSIGN_OR_RETURN(SafetensorsWriter writer,
                   SafetensorsWriter::Create(partial.path(), plan.tensors, options.max_file_bytes));
  int64_t so_far = 0;
  const std::function<void(int64_t)> done = [&](int64_t bytes) {
    so_far += bytes;
    if (progress) progress(so_far, checkpoint.total_bytes());
  };
  for (const StoredTensor* tensor : plan.copied) {
    RETURN_IF_ERROR(CopyTensor(*tensor, writer));
    done(static_cast<int64_t>(tensor->info->size_bytes));
  }
  std::unique_ptr<Calibrator> calibrator;
  if (options.target->needs_calibration() || options.fp8_kv_cache) {
    ASSIGN_OR_RETURN(calibrator, Calibrator::Create(pool, config, spec, checkpoint, list, weights,
                                                    options.calibration));
  }
  Quantizer quantizer(pool, options, writer, done);
  for (const QuantizedLayer& layer : plan.layers) {
    LayerStatistics statistics;
    if (calibrator != nullptr) {
      ASSIGN_OR_RETURN(statistics, calibrator->RunLayer(layer.index));
    }
    RETURN_IF_ERROR(quantizer.WriteLayer(layer, &statistics));
  }
  RETURN_IF_ERROR(writer.Finish());
  RETURN_IF_ERROR(CopyFiles(other_files, partial.path()));
  RETURN_IF_ERROR(WriteConfiguration(partial.path(), config, plan, options));
  RETURN_IF_ERROR(partial.MoveTo(out));
  return QuantizeReport{.quantized_modules = quantizer.modules(),
                        .plain_modules = plan.num_plain,
                        .source_bytes = checkpoint.total_bytes(),
                        .written_bytes = writer.total_bytes(),
                        .relative_error = quantizer.relative_error()};
}

}  // namespace sluice
