// The description of an image tower as data. A tower reads patches of an image and outputs rows of
// the decoder's width. program/build_tower.cc turns the description into operators.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/rope.h"
#include "models/decoder_spec.h"
#include "models/model_config.h"

namespace sluice {

enum class TowerActivation {
  kGelu,  // GELU, computed with erf
  kGeluTanh,
  kQuickGelu,
  kSilu,
};

// A step applied to the rows after the layers.
struct ProjectorStep {
  enum class Kind {
    kLayerNorm,
    kRmsNorm,       // with weights
    kPlainRmsNorm,  // without weights
    kStandardize,   // (x - module + "_bias") * module + "_scale": Gemma 4
    kScale,         // multiplies by `factor`
    kConcatenate,   // concatenates the patches of a merged row
    // Interleaves the patches of a merged row: the first elements of all patches, then the second
    // elements, ...: Mistral 3.
    kConcatByNumber,
    kMean,    // mean of the patches of a merged row
    kLinear,  // a linear layer to `width` elements
    kGated,   // activation(gate(x)) * module(x), `width` elements
    kActivate,
  };
  Kind kind = Kind::kConcatenate;
  std::string module = {}, gate = {};
  int64_t width = 0;
  TowerActivation activation = TowerActivation::kGelu;
  float eps = 0, offset = 0, factor = 1;
  bool has_bias = true;
  bool is_transposed = false;  // whether `module` is the name of a tensor [in, out]
  // For kGated: whether `module` contains the rows of both matrices, with the gate's rows last.
  bool holds_gate = false;
  // Shape of the tensor of a kLinear that is stored as a convolution: [width, ...]. Empty: it is a
  // matrix.
  std::vector<int64_t> shape = {};
};

// An output of a tower after one of its layers. It is added to the image rows after one of the
// decoder's first layers.
struct TowerLevel {
  int64_t layer = 0;  // index of the tower's layer
  std::vector<ProjectorStep> projector;
};

// Sources: transformers' classes; the reader of each family names its class.
struct TowerSpec {
  // --- Patches
  int64_t channels = 3;
  int64_t patch = 0;     // pixels per side
  int64_t temporal = 1;  // copies of the image in a patch
  enum class Input {
    kPixels,         // [images, channels, height, width], or a single image
    kRasterPatches,  // [patches, elements], patches row by row
    kBlockPatches,   // [patches, elements], with merged patches consecutive
  };
  Input input = Input::kPixels;
  float shift = 0, scale = 1;  // elements become (x - shift) * scale
  std::string patch_module;
  std::vector<int64_t> patch_shape;  // shape of the weights, [hidden, ...]
  bool patch_bias = false;
  std::string patch_norm = {};  // RMS norm before positions are added; "": none
  int64_t merge = 1;            // merge x merge patches become one merged row
  int64_t side = 0;             // patches per side of an image of fixed size; 0: any size
  // Number of patches by which an image may exceed TowerOptions::most_patches, because the
  // processor limits the number of patches before it pads the image to whole merged patches. A
  // multiple of group().
  int64_t padding_patches = 0;
  // Whether there is a class row after the patches; it is dropped at the end.
  bool has_class = false;
  std::string class_tensor = {};

  // --- Positions: an added table
  enum class Positions {
    kNone,
    kOrdinal,     // a row for each patch, row by row, then one for the class
    kClassFirst,  // a row for the class, then one for each patch, row by row
    kBuckets,     // the row of a square table at the patch's relative position in the image
    // Bilinear interpolation in a square table; the corners of table and image coincide.
    kInterpolated,
    kInterpolatedCentres,  // bilinear interpolation between the centres of the table's rows
    // Like kInterpolatedCentres, antialiased if the image has fewer rows than the table.
    kAntialiased,
    kBicubic,  // cubic interpolation (a = -0.75) between the centres of the table's rows
    kAxes,     // a table for columns and one for rows
  };
  Positions positions = Positions::kNone;
  std::string position_tensor = {};
  // Shape of the table; the last dimension is `hidden`. A square table has the shape [rows * rows,
  // hidden] or [rows, rows, hidden].
  std::vector<int64_t> position_shape;

  // --- Positions: RoPE by a patch's row and column
  std::vector<float> rope_frequencies;  // [head_dim / 2]; empty: no RoPE
  std::vector<int8_t> rope_axes;        // axis of each frequency: 0 rows, 1 columns
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  int32_t rope_first = 0;  // position of the first row and column; the class row has position 0
  // Whether the halves of a head are rotated separately, one by columns and one by rows. Loading
  // reorders the rows of q and k, so that rotating whole heads gives the same result.
  bool rotates_halves = false;

  // --- Layers
  int64_t hidden = 0, heads = 0, head_dim = 0, intermediate = 0, num_layers = 0;
  NormSpec::Kind norm = NormSpec::Kind::kLayer;
  float norm_eps = 1e-6F;
  std::string first_norm = {};  // norm before the layers; "": none
  std::string layer_prefix;     // prefix of layer names, such as "visual.blocks."
  std::string attention_norm, mlp_norm;
  // Norms of the sublayers' results, applied before the results are added to the residual.
  std::string attention_after = {}, mlp_after = {};
  std::string qkv = {};  // module of q, k and v together; "": they have separate modules
  std::string q = {}, k = {}, v = {};
  std::string output;
  bool attention_bias = true, output_bias = true;
  std::string q_norm = {}, k_norm = {};  // norms of q and k heads, before RoPE
  bool norms_values = false;             // whether v heads are normalized, without weights
  // Names of vectors that multiply the sublayers' results elementwise before they are added to the
  // residual; "": none.
  std::string attention_factor = {}, mlp_factor = {};
  std::optional<float> attention_scale = {};
  std::string gate = {}, up, down;  // names of the MLP's modules; gate "": the MLP has no gate
  bool mlp_bias = true;
  TowerActivation activation = TowerActivation::kGelu;
  // Suffix of the module inside linear layers that has the weights: ".linear".
  std::string inner_module = {};
  bool clips = false;  // whether inputs and results of linear layers are clamped

  // Patches per side of a window. Layers attend within windows, except those in `whole`. 0: all
  // layers attend to the whole image.
  int64_t window = 0;
  std::vector<bool> whole;  // whether each layer attends to the whole image

  // --- After the layers
  // Layers, in ascending order, whose results are concatenated; empty: only the results of the last
  // layer.
  std::vector<int64_t> features;
  std::vector<ProjectorStep> projector;
  std::vector<TowerLevel> levels;
  int64_t out_width = 0;  // the decoder's width
  // Name of a vector that is appended to each row of a canvas of tiles (ProcessedImage::kept); "":
  // tiles are separate.
  std::string newline_tensor = {};
  float newline_factor = 1;

  // Whether, in the decoder, tokens of an image attend to all tokens of the image, including later
  // ones.
  bool sees_both_ways = false;

  bool reads_square() const {
    return positions == Positions::kBuckets || positions == Positions::kInterpolated ||
           positions == Positions::kInterpolatedCentres || positions == Positions::kAntialiased ||
           positions == Positions::kBicubic;
  }
  int64_t patch_numbers() const { return channels * temporal * patch * patch; }
  int64_t group() const { return merge * merge; }
  // Returns the width of the projector's input rows.
  int64_t feature_width() const { return hidden * std::max<int64_t>(1, std::ssize(features)); }
  // Returns the width of the tower's result rows: the decoder's input, then each level.
  int64_t row_width() const { return out_width * (1 + std::ssize(levels)); }
};

// Returns the tower of a model; nullopt if config.json has no vision_config, or the architecture
// has no known tower. kUnsupported names the field with an unsupported value.
Result<std::optional<TowerSpec>> ReadTowerSpec(const ModelConfig& config);

}  // namespace sluice
