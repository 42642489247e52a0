// An action that rank 0 requests from the other ranks between two steps, in the order of the steps.
#pragma once

#include <cstdint>

#include "models/cache_bytes.h"

namespace sluice {

struct RankCall {
  enum class Kind : int64_t {
    kNone,
    kSwitch,  // compute with the staged weights from the next step on (weight_stage.h)
    kRead,    // send this rank's share of a piece of the cache
    kWrite,   // receive it
    kRecord,  // capture steps as graphs (Model::RecordSteps); only between threads
  };
  Kind kind = Kind::kNone;
  CachePiece piece = CachePiece::kBlock;
  int64_t place = 0;  // of the piece
};

}  // namespace sluice
