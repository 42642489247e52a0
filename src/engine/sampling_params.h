// The settings of a request's sampling, for those who fill them in.
#pragma once

#include "sampler/sampling_params.h"  // IWYU pragma: export
