// The description of an image tower as data: patches of an image in, rows of the decoder's width
// out. program/build_tower.cc turns it into operators.
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
  kGelu,  // by erf
  kGeluTanh,
  kQuickGelu,
  kSilu,
};

// One step of what is made of the rows after the layers.
struct ProjectorStep {
  enum class Kind {
    kLayerNorm,
    kRmsNorm,         // with weights
    kPlainRmsNorm,    // without
    kStandardize,     // (x - module + "_bias") * module + "_scale": Gemma 4
    kScale,           // by `factor`
    kConcatenate,     // the patches of a merged row follow each other
    kConcatByNumber,  // the first numbers of all of them, then the second ones...: Mistral 3
    kMean,            // their mean
    kLinear,          // to `width` numbers
    kGated,           // to `width` numbers: those of `gate`, activated, times those of `module`
    kActivate,
  };
  Kind kind = Kind::kConcatenate;
  std::string module = {}, gate = {};
  int64_t width = 0;
  TowerActivation activation = TowerActivation::kGelu;
  float eps = 0, offset = 0, factor = 1;
  bool has_bias = true;
  bool is_transposed = false;  // `module` is the name of a tensor [in, out]
  // A kLinear may have the tensor of a convolution: [width, ...]; empty: it is a matrix.
  std::vector<int64_t> shape = {};
};

// What a tower makes behind one of its layers: added to the rows of images behind the decoder's
// first layers.
struct TowerLevel {
  int64_t layer = 0;  // after which
  std::vector<ProjectorStep> projector;
};

// Source: transformers' classes of each family, which its reader names.
struct TowerSpec {
  // --- Patches
  int64_t channels = 3;
  int64_t patch = 0;     // pixels to a side
  int64_t temporal = 1;  // times that the image is in a patch
  enum class Input {
    kPixels,         // [images, channels, height, width], or one of them
    kRasterPatches,  // [patches, numbers], row by row
    kBlockPatches,   // likewise, those that are merged following each other
  };
  Input input = Input::kPixels;
  float shift = 0, scale = 1;  // numbers become (x - shift) * scale
  std::string patch_module;
  std::vector<int64_t> patch_shape;  // of its weights, [hidden, ...]
  bool patch_bias = false;
  std::string patch_norm = {};  // RMS, before positions are added; "": there is none
  int64_t merge = 1;            // patches to a side of a merged row
  int64_t side = 0;             // patches to a side of an image, which has no other size; 0: any
  bool has_class = false;       // a row after the patches, which is dropped at last
  std::string class_tensor = {};

  // --- Positions: a table that is added
  enum class Positions {
    kNone,
    kOrdinal,              // a row for each patch, row by row, then for the class
    kClassFirst,           // likewise, the class's before the others
    kBuckets,              // of a square table, that at a patch's share of the image's sides
    kInterpolated,         // bilinear in a square table, whose corners are the image's
    kInterpolatedCentres,  // likewise between the centres of its rows
    kAntialiased,          // likewise, as wide as a row of the image is where it is smaller
    kBicubic,              // cubic (a = -0.75) between the centres of its rows
    kAxes,                 // a table of columns and one of rows
  };
  Positions positions = Positions::kNone;
  std::string position_tensor = {};
  std::vector<int64_t> position_shape;  // ends in `hidden`

  // --- Positions: rope, whose frequencies turn with a patch's row or column
  std::vector<float> rope_frequencies;  // [head_dim / 2]; empty: there is none
  std::vector<int8_t> rope_axes;        // of each frequency: 0 rows, 1 columns
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  int32_t rope_first = 0;  // the position of the first row and column; the class is at 0
  // Halves of a head are rotated each for itself, one by columns and one by rows: rows of q and k
  // are loaded in the order in which the whole head is rotated at once.
  bool rotates_halves = false;

  // --- Layers
  int64_t hidden = 0, heads = 0, head_dim = 0, intermediate = 0, num_layers = 0;
  NormSpec::Kind norm = NormSpec::Kind::kLayer;
  float norm_eps = 1e-6F;
  std::string first_norm = {};  // before the layers; "": none
  std::string layer_prefix;     // "visual.blocks."
  std::string attention_norm, mlp_norm;
  std::string attention_after = {}, mlp_after = {};  // of results, before they are added
  std::string qkv = {};                              // one module of q, k and v; "": the next three
  std::string q = {}, k = {}, v = {};
  std::string output;
  bool attention_bias = true, output_bias = true;
  std::string q_norm = {}, k_norm = {};  // of heads, before rope
  bool norms_values = false;             // v's heads, without weights
  // Vectors by which results are multiplied, number by number, before they are added; "": none.
  std::string attention_factor = {}, mlp_factor = {};
  std::optional<float> attention_scale = {};
  std::string gate = {}, up, down;  // gate "": there is none
  bool mlp_bias = true;
  TowerActivation activation = TowerActivation::kGelu;
  std::string inner_module = {};  // of linear layers' weights, after their names: ".linear"
  bool clips = false;             // inputs and results of linear layers

  // Patches to a side of a window; layers that are not `whole` see their window alone. 0: all
  // layers see the image.
  int64_t window = 0;
  std::vector<bool> whole;  // by layer

  // --- Behind the layers
  // Layers, ascending, behind which rows are taken, side by side; empty: behind the last one.
  std::vector<int64_t> features;
  std::vector<ProjectorStep> projector;
  std::vector<TowerLevel> levels;
  int64_t out_width = 0;  // the decoder's
  // A vector that ends each row of a canvas of tiles (ProcessedImage::kept); "": tiles are apart.
  std::string newline_tensor = {};
  float newline_factor = 1;

  // The prompt's tokens that stand for rows see all others of their image, before and after.
  bool sees_both_ways = false;

  bool reads_square() const {
    return positions == Positions::kBuckets || positions == Positions::kInterpolated ||
           positions == Positions::kInterpolatedCentres || positions == Positions::kAntialiased ||
           positions == Positions::kBicubic;
  }
  int64_t patch_numbers() const { return channels * temporal * patch * patch; }
  int64_t group() const { return merge * merge; }
  // Numbers of a row that the projector begins with.
  int64_t feature_width() const { return hidden * std::max<int64_t>(1, std::ssize(features)); }
  // Numbers of a row that the tower yields: of the decoder's input, then of each level.
  int64_t row_width() const { return out_width * (1 + std::ssize(levels)); }
};

// The tower of a model; nullopt where the architecture has none that is known, or config.json no
// vision_config. kUnsupported names the field whose value no tower here computes.
Result<std::optional<TowerSpec>> ReadTowerSpec(const ModelConfig& config);

}  // namespace sluice
