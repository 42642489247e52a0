// The scheme of unquantized weights. The KV cache may still be FP8.
#include "checkpoint/schemes/linear_layout.h"

namespace sluice {
namespace {

class PlainWeights : public PlannedScheme {
 public:
  explicit PlainWeights(ElementType dtype) : PlannedScheme(dtype, false), dtype_(dtype) {}
  std::string Name() const override { return std::string(ElementTypeName(dtype_)); }
  std::string_view Method() const override { return ""; }

 protected:
  ModulePlan PlanOf(std::string_view) const override { return {}; }

 private:
  ElementType dtype_;
};

}  // namespace

std::shared_ptr<const QuantizationScheme> PlainScheme(ElementType dtype) {
  return std::make_shared<PlainWeights>(dtype);
}

}  // namespace sluice
