// The description of an image tower as data. A tower reads patches of an image and makes rows of
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
  kGelu,  // by erf
  kGeluTanh,
  kQuickGelu,
  kSilu,
};

// A step applied to the rows after the layers.
struct ProjectorStep {
  enum class Kind {
    kLayerNorm,
    kRmsNorm,         // with weights
    kPlainRmsNorm,    // without weights
    kStandardize,     // (x - module + "_bias") * module + "_scale": Gemma 4
    kScale,           // multiplies by `factor`
    kConcatenate,     // joins the patches of a merged row, one after the other
    kConcatByNumber,  // interleaves them: the first numbers of all patches, then the second
                      // ones...: Mistral 3
    kMean,            // mean of the patches of a merged row
    kLinear,          // a linear layer to `width` numbers
    kGated,           // activation(gate(x)) * module(x), `width` numbers
    kActivate,
  };
  Kind kind = Kind::kConcatenate;
  std::string module = {}, gate = {};
  int64_t width = 0;
  TowerActivation activation = TowerActivation::kGelu;
  float eps = 0, offset = 0, factor = 1;
  bool has_bias = true;
  bool is_transposed = false;  // `module` is the name of a tensor [in, out]
  // Shape of the tensor of a kLinear that is stored as a convolution, [width, ...]; empty: it is a
  // matrix.
  std::vector<int64_t> shape = {};
};

// A result that a tower makes after one of its layers; it is added to the rows of images after one
// of the decoder's first layers.
struct TowerLevel {
  int64_t layer = 0;  // index of the tower's layer
  std::vector<ProjectorStep> projector;
};

// Sources: transformers' classes for each family, named at its reader.
struct TowerSpec {
  // --- Patches
  int64_t channels = 3;
  int64_t patch = 0;     // pixels per side
  int64_t temporal = 1;  // copies of the image in a patch
  enum class Input {
    kPixels,         // [images, channels, height, width], or a single image
    kRasterPatches,  // [patches, numbers], row by row
    kBlockPatches,   // likewise, but merged patches are consecutive
  };
  Input input = Input::kPixels;
  float shift = 0, scale = 1;  // numbers become (x - shift) * scale
  std::string patch_module;
  std::vector<int64_t> patch_shape;  // shape of the weights, [hidden, ...]
  bool patch_bias = false;
  std::string patch_norm = {};  // RMS norm before positions are added; "": none
  int64_t merge = 1;            // patches per side of a merged row
  int64_t side = 0;             // patches per side of an image of fixed size; 0: any size
  bool has_class = false;       // a row after the patches, dropped at the end
  std::string class_tensor = {};

  // --- Positions: an added table
  enum class Positions {
    kNone,
    kOrdinal,       // a row for each patch, row by row, then one for the class
    kClassFirst,    // likewise, but the class comes first
    kBuckets,       // the row of a square table at the patch's relative position in the image
    kInterpolated,  // bilinear in a square table; the corners of table and image coincide
    kInterpolatedCentres,  // bilinear between the centres of the table's rows
    kAntialiased,          // likewise, antialiased where the image has fewer rows than the table
    kBicubic,              // cubic (a = -0.75) between the centres of the table's rows
    kAxes,                 // a table for columns and one for rows
  };
  Positions positions = Positions::kNone;
  std::string position_tensor = {};
  std::vector<int64_t> position_shape;  // the last size is `hidden`

  // --- Positions: RoPE, by a patch's row and column
  std::vector<float> rope_frequencies;  // [head_dim / 2]; empty: no RoPE
  std::vector<int8_t> rope_axes;        // axis of each frequency: 0 rows, 1 columns
  kernels::RopeStyle rope_style = kernels::RopeStyle::kHalf;
  int32_t rope_first = 0;  // position of the first row and column; the class is at 0
  // The halves of a head are rotated separately, one by columns and one by rows. Rows of q and k
  // are reordered during loading, so that rotating whole heads gives the same result.
  bool rotates_halves = false;

  // --- Layers
  int64_t hidden = 0, heads = 0, head_dim = 0, intermediate = 0, num_layers = 0;
  NormSpec::Kind norm = NormSpec::Kind::kLayer;
  float norm_eps = 1e-6F;
  std::string first_norm = {};  // norm before the layers; "": none
  std::string layer_prefix;     // "visual.blocks."
  std::string attention_norm, mlp_norm;
  std::string attention_after = {}, mlp_after = {};  // norms of results, before adding them
  std::string qkv = {};  // module of q, k and v together; "": they have separate modules
  std::string q = {}, k = {}, v = {};
  std::string output;
  bool attention_bias = true, output_bias = true;
  std::string q_norm = {}, k_norm = {};  // norms of heads, before RoPE
  bool norms_values = false;             // norms heads of v, without weights
  // Vectors that multiply results elementwise before they are added to the residual; "": none.
  std::string attention_factor = {}, mlp_factor = {};
  std::optional<float> attention_scale = {};
  std::string gate = {}, up, down;  // gate "": no gate
  bool mlp_bias = true;
  TowerActivation activation = TowerActivation::kGelu;
  std::string inner_module = {};  // of linear layers, holds the weights: ".linear"
  bool clips = false;             // clamps inputs and results of linear layers

  // Patches per side of a window. Layers attend within windows unless they are `whole`. 0: all
  // layers attend to the whole image.
  int64_t window = 0;
  std::vector<bool> whole;  // index: layer

  // --- After the layers
  // Layers, ascending, whose results are taken, side by side; empty: only those of the last.
  std::vector<int64_t> features;
  std::vector<ProjectorStep> projector;
  std::vector<TowerLevel> levels;
  int64_t out_width = 0;  // the decoder's width
  // A vector that ends each row of a canvas of tiles (ProcessedImage::kept); "": tiles are
  // separate.
  std::string newline_tensor = {};
  float newline_factor = 1;

  // In the decoder, tokens of an image attend to all tokens of the image, including later ones.
  bool sees_both_ways = false;

  bool reads_square() const {
    return positions == Positions::kBuckets || positions == Positions::kInterpolated ||
           positions == Positions::kInterpolatedCentres || positions == Positions::kAntialiased ||
           positions == Positions::kBicubic;
  }
  int64_t patch_numbers() const { return channels * temporal * patch * patch; }
  int64_t group() const { return merge * merge; }
  // Width of the projector's input rows.
  int64_t feature_width() const { return hidden * std::max<int64_t>(1, std::ssize(features)); }
  // Width of the tower's result rows: the decoder's input, then each level.
  int64_t row_width() const { return out_width * (1 + std::ssize(levels)); }
};

// Returns the tower of a model; nullopt if config.json has no vision_config, or the architecture
// has no known tower. kUnsupported names the field with an unsupported value.
Result<std::optional<TowerSpec>> ReadTowerSpec(const ModelConfig& config);

}  // namespace sluice
