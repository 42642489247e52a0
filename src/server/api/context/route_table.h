// All routes, in the order of /openapi.json. Each line names a function, which a file in routes/
// defines.
#pragma once

#include <vector>

#include "server/api/context/route.h"

#define SLUICE_ROUTE_TABLE(ROUTES) \
  ROUTES(StatusRoutes)             \
  ROUTES(MetricsRoutes)            \
  ROUTES(ModelRoutes)              \
  ROUTES(TokenizerInfoRoutes)      \
  ROUTES(DocsRoutes)               \
  ROUTES(WebRoutes)                \
  ROUTES(LoraRoutes)               \
  ROUTES(CompletionRoutes)         \
  ROUTES(ChatRoutes)               \
  ROUTES(MessagesRoutes)           \
  ROUTES(ResponsesRoutes)          \
  ROUTES(InvocationRoutes)         \
  ROUTES(EmbeddingRoutes)          \
  ROUTES(CohereRoutes)             \
  ROUTES(ClassifyRoutes)           \
  ROUTES(ScoreRoutes)              \
  ROUTES(DecisionRoutes)           \
  ROUTES(TokenizeRoutes)           \
  ROUTES(HealthGenerateRoutes)     \
  ROUTES(GenerateRoutes)           \
  ROUTES(RefusedRoutes)            \
  ROUTES(ServerInfoRoutes)         \
  ROUTES(CacheRoutes)              \
  ROUTES(PauseRoutes)              \
  ROUTES(SleepRoutes)              \
  ROUTES(WeightRoutes)             \
  ROUTES(AbortRoutes)              \
  ROUTES(WorkerRoutes)

namespace sluice {

#define SLUICE_DECLARE_ROUTES(name) std::vector<Route> name();
SLUICE_ROUTE_TABLE(SLUICE_DECLARE_ROUTES)
#undef SLUICE_DECLARE_ROUTES

}  // namespace sluice
