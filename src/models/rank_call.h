// An action that rank 0 requests from the other ranks between two steps, in the order of the steps.
#pragma once

#include <cstdint>

#include "models/cache_bytes.h"

namespace sluice {

struct RankCall {
  enum class Kind : int64_t {
    kNone,
    kSwitch,  // the rank uses the staged weights from the next step on (weight_stage.h)
    kRead,    // the rank sends its share of a piece of the cache
    kWrite,   // the rank receives its share of a piece of the cache
    kRecord,  // the rank captures steps as graphs (Model::RecordSteps); only if ranks are threads
  };
  Kind kind = Kind::kNone;
  CachePiece piece = CachePiece::kBlock;
  int64_t place = 0;  // index of the piece
};

}  // namespace sluice
