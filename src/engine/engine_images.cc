// The part of EngineCore for images: keeps images in the pool, computes their rows, and adds the
// rows to a step. Prompts that consist of rows are handled in the same way.
#include <algorithm>

#include "base/check.h"
#include "engine/engine_core.h"

namespace sluice {

void EngineCore::HoldImages(ActiveRequest& request) {
  CHECK(images_ != nullptr, "a request with images for a model without a tower");
  const std::vector<ImageInput>& inputs = request.request.images;
  std::vector<int32_t> keys = request.request.prompt;
  request.holds_images = true;
  std::vector<ScheduledSequence::Image>& held = request.sequences.front()->images;
  held.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ProcessedImage& image = *inputs[i].image;
    const std::vector<uint8_t>& marks = image.is_embedding;
    const auto first = std::find(marks.begin(), marks.end(), 1) - marks.begin();
    const auto last = marks.rend() - std::find(marks.rbegin(), marks.rend(), 1);
    const ImageId id = images_->Hold(request.image_hashes[i], image.num_embeddings);
    held.push_back({.id = id,
                    .begin = inputs[i].position + first,
                    .end = inputs[i].position + last,
                    .rows = image.num_embeddings,
                    .is_whole = tower_->spec().sees_both_ways});
    for (size_t k = 0; k < marks.size(); ++k) {
      if (marks[k] != 0) keys[static_cast<size_t>(inputs[i].position) + k] = -1 - id;
    }
  }
  for (const auto& sequence : request.sequences) {
    if (sequence->index > 0) sequence->images = held;
    sequence->keys = keys;
  }
}

void EngineCore::ReleaseImages(ActiveRequest& request) {
  request.holds_images = false;
  for (const ScheduledSequence::Image& image : request.sequences.front()->images)
    images_->Release(image.id);
}

void EngineCore::ResetImageRows() {
  if (images_ != nullptr) images_->Reset();
}

void EngineCore::HoldRows(ActiveRequest& request) {
  // Makes the keys of prompt rows different from the keys of images.
  constexpr int32_t kFirst = 1 << 30;
  const int64_t rows = request.request.rows->rows();
  std::vector<int32_t> keys;
  keys.reserve(static_cast<size_t>(rows));
  request.row_ids.reserve(request.row_hashes.size());
  for (const ImageHash& hash : request.row_hashes) {
    const int64_t count = std::min(kPromptPart, rows - std::ssize(keys));
    request.row_ids.push_back(row_ids_.Hold(hash, count));
    keys.insert(keys.end(), static_cast<size_t>(count), -kFirst - request.row_ids.back());
  }
  for (const auto& sequence : request.sequences) sequence->keys = keys;
}

void EngineCore::ReleaseRows(ActiveRequest& request) {
  for (const ImageId part : request.row_ids) row_ids_.Release(part);
  request.row_ids.clear();
}

float* EngineCore::ImageRowAt(int32_t place) {
  if (tower_->is_on_device()) return nullptr;
  return image_memory_.As<float>().data() + place * tower_->spec().row_width();
}

void EngineCore::EncodeImages(const StepPlan& plan, StepInput& input) {
  stored_images_.clear();
  for (const StepPlan::NewImage& made : plan.new_images) {
    const ActiveRequest& request = *static_cast<ActiveSequence*>(made.sequence)->request;
    const ProcessedImage& image = *request.request.images[made.image].image;
    if (tower_->is_on_device()) {
      tower_->EncodeTo(pool_, image, images_->PlacesOf(made.sequence->images[made.image].id));
      continue;
    }
    image_targets_.clear();
    for (const int32_t place : images_->PlacesOf(made.sequence->images[made.image].id)) {
      image_targets_.push_back(ImageRowAt(place));
      stored_images_.push_back({place, ImageRowAt(place)});
    }
    tower_->Encode(pool_, image, image_targets_);
  }
  input.stored_image_rows = stored_images_;
}

void EngineCore::EndImages(const StepPlan& plan, bool failed) {
  if (failed) {
    for (const StepPlan::NewImage& made : plan.new_images)
      images_->Drop(made.sequence->images[made.image].id);
  }
  images_->EndStep();
}

void EngineCore::AddRowsOf(const PlannedSlice& slice, int64_t first_row) {
  const auto& sequence = static_cast<const ActiveSequence&>(*slice.sequence);
  const std::vector<ImageInput>& inputs = sequence.request->request.images;
  const int32_t token = model_->config().spec.image_token;
  const int64_t end = slice.first + slice.num_tokens;
  if (const PromptRows* const rows = sequence.request->request.rows.get(); rows != nullptr) {
    for (int64_t position = slice.first; position < std::min(end, rows->rows()); ++position) {
      image_inputs_.push_back({static_cast<int32_t>(first_row + position - slice.first),
                               rows->values.data() + position * rows->width});
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ScheduledSequence::Image& image = sequence.images[i];
    if (image.end <= slice.first || image.begin >= end) continue;
    const std::span<const int32_t> places = images_->PlacesOf(image.id);
    const std::vector<uint8_t>& marks = inputs[i].image->is_embedding;
    size_t row = 0;
    for (int64_t position = image.begin; position < std::min(image.end, end); ++position) {
      if (marks[static_cast<size_t>(position - inputs[i].position)] == 0) continue;
      const int32_t place = places[row++];
      if (position < slice.first) continue;
      const int64_t at = first_row + position - slice.first;
      image_inputs_.push_back({static_cast<int32_t>(at), ImageRowAt(place), place});
      if (token >= 0) tokens_[static_cast<size_t>(at)] = token;
    }
  }
}

void EngineCore::AddImages(const StepPlan& plan, StepInput& input) {
  image_inputs_.clear();
  rope_positions_.clear();
  bool has_axes = false;
  int64_t first_row = 0;
  for (const PlannedSlice& slice : plan.slices) {
    AddRowsOf(slice, first_row);
    first_row += slice.num_tokens;
    has_axes =
        has_axes || !static_cast<const ActiveSequence*>(slice.sequence)->request->rope.is_plain();
  }
  input.image_rows = image_inputs_;
  if (!has_axes) return;
  for (int axis = 0; axis < RopePositions::kAxes; ++axis) {
    for (const PlannedSlice& slice : plan.slices) {
      const RopePositions& rope = static_cast<const ActiveSequence*>(slice.sequence)->request->rope;
      for (int64_t i = 0; i < slice.num_tokens; ++i)
        rope_positions_.push_back(rope.At(axis, slice.first + i));
    }
  }
  input.rope_positions = rope_positions_;
}

}  // namespace sluice
