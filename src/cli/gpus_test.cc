#include "cli/gpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

GpuFindings OneGpu() {
  GpuFinding gpu;
  gpu.info.ordinal = 1;
  gpu.info.name = "NVIDIA H200";
  gpu.info.uuid = "GPU-0";
  gpu.info.compute_major = 9;
  gpu.info.compute_minor = 0;
  gpu.info.num_multiprocessors = 132;
  gpu.info.total_bytes = int64_t{140} << 30;
  gpu.info.driver_version = 13010;
  gpu.info.runtime_version = 13000;
  gpu.free_bytes = int64_t{139} << 30;
  return {.gpus = {gpu}, .reason = "", .library = "cuBLASLt 13.0.2 (libcublasLt.so.13)"};
}

TEST(Gpus, AreListedWithTheirMemory) {
  const GpuFindings findings = OneGpu();
  EXPECT_EQ(GpuLines(findings),
            "gpu 1      NVIDIA H200, 139.00 GiB free of 140.00 GiB, compute capability 9.0, 132 "
            "multiprocessors\n"
            "           driver for CUDA 13.1, program built with CUDA 13.0\n"
            "products   of many rows: cuBLASLt 13.0.2 (libcublasLt.so.13)\n");
  json::Value object{json::Value::Object{}};
  AddGpuFields(findings, object);
  const std::string text = json::Write(object);
  EXPECT_THAT(text, HasSubstr(R"("name":"NVIDIA H200")"));
  EXPECT_THAT(text, HasSubstr(R"("compute_capability":"9.0")"));
  EXPECT_THAT(text, HasSubstr(R"("memory_free_bytes":149250113536)"));
  EXPECT_THAT(text, HasSubstr(R"("driver_cuda_version":"13.1")"));
  EXPECT_THAT(text, HasSubstr(R"("problem":null)"));
  EXPECT_THAT(text, HasSubstr(R"("gpus_reason":null)"));
  EXPECT_THAT(text, HasSubstr(R"("cublaslt":"cuBLASLt 13.0.2 )"));
  EXPECT_THAT(text, HasSubstr(R"("hipblaslt":null)"));
}

TEST(Gpus, OfAmdAreNamedAsTheirCompilerDoes) {
  GpuFindings findings = OneGpu();
  findings.library = "hipBLASLt 1.0.0 (libhipblaslt.so.1)";
  DeviceInfo& info = findings.gpus[0].info;
  info.kind = DeviceKind::kHip;
  info.name = "AMD Instinct MI355X";
  info.compute_minor = 5;
  info.num_multiprocessors = 256;
  info.runtime_version = 70051831;
  EXPECT_EQ(GpuLines(findings),
            "gpu 1      AMD Instinct MI355X, 139.00 GiB free of 140.00 GiB, gfx950, 256 "
            "multiprocessors\n"
            "           HIP's runtime 7.0\n"
            "products   of many rows: hipBLASLt 1.0.0 (libhipblaslt.so.1)\n");
  json::Value object{json::Value::Object{}};
  AddGpuFields(findings, object);
  const std::string text = json::Write(object);
  EXPECT_THAT(text, HasSubstr(R"("kind":"hip")"));
  EXPECT_THAT(text, HasSubstr(R"("architecture":"gfx950")"));
  EXPECT_THAT(text, HasSubstr(R"("runtime_hip_version":"7.0")"));
  EXPECT_THAT(text, HasSubstr(R"("cublaslt":null)"));
  EXPECT_THAT(text, HasSubstr(R"("hipblaslt":"hipBLASLt 1.0.0 )"));
  EXPECT_THAT(text, Not(HasSubstr("cuda_version")));
}

TEST(Gpus, ThatCannotBeUsedSayWhy) {
  GpuFindings findings = OneGpu();
  findings.gpus[0].problem = "compute capability 7.5 is too old";
  EXPECT_THAT(GpuLines(findings), HasSubstr("cannot be used: compute capability 7.5 is too old\n"));
  EXPECT_THAT(GpuLines(findings), Not(HasSubstr("free")));
  json::Value object{json::Value::Object{}};
  AddGpuFields(findings, object);
  EXPECT_THAT(json::Write(object), HasSubstr(R"("memory_free_bytes":null)"));
  EXPECT_THAT(json::Write(object), HasSubstr(R"("problem":"compute capability 7.5 is too old")"));
}

TEST(Gpus, TheirAbsenceHasAReason) {
  GpuFindings findings = ExamineGpus();
  if (!findings.gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_FALSE(findings.reason.empty());
  EXPECT_EQ(GpuLines(findings), "gpus       none: " + findings.reason + "\n");
  json::Value object{json::Value::Object{}};
  AddGpuFields(findings, object);
  EXPECT_THAT(json::Write(object), HasSubstr(R"("gpus":[])"));
  EXPECT_THAT(json::Write(object), HasSubstr(R"("gpus_reason":")"));
  EXPECT_THAT(json::Write(object), HasSubstr(R"("cublaslt":null)"));
  EXPECT_THAT(json::Write(object), HasSubstr(R"("hipblaslt":null)"));
}

}  // namespace
}  // namespace sluice::cli
