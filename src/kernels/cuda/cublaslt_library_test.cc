#include "kernels/cuda/cublaslt_library.h"

#include <dlfcn.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "kernels/cuda/library_linear_testing.h"

namespace sluice::device {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Sets or unsets (null) an environment variable for its lifetime.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    Set(value);
  }
  ~ScopedVariable() { Set(before_ ? before_->c_str() : nullptr); }

 private:
  void Set(const char* value) const {
    if (value != nullptr)
      setenv(name_, value, 1);
    else
      unsetenv(name_);
  }

  const char* name_;
  std::optional<std::string> before_;
};

TEST(CublasLtLibrary, OpensTheFileThatIsNamed) {
  ResetFakeCublasLt();
  const auto library = CublasLtLibrary::Open(SLUICE_FAKE_CUBLASLT);
  ASSERT_TRUE(library.has_value()) << library.error().message;
  EXPECT_EQ((*library)->version(), 130002);
  EXPECT_THAT((*library)->Describe(), AllOf(HasSubstr("cuBLASLt 13.0.2"), HasSubstr("fake")));
}

TEST(CublasLtLibrary, FollowsTheEnvironment) {
  ResetFakeCublasLt();
  const ScopedVariable none("SLUICE_CUBLASLT", nullptr);
  EXPECT_FALSE(CublasLtLibrary::IsNamedByUser(DeviceKind::kCuda));
  {
    const ScopedVariable variable("SLUICE_CUBLASLT", SLUICE_FAKE_CUBLASLT);
    EXPECT_TRUE(CublasLtLibrary::IsNamedByUser(DeviceKind::kCuda));
    const auto library = CublasLtLibrary::Open("");
    ASSERT_TRUE(library.has_value()) << library.error().message;
    EXPECT_THAT((*library)->Describe(), HasSubstr("fake"));
  }
  const ScopedVariable variable("SLUICE_CUBLASLT", "/nowhere/libcublasLt.so.13");
  const auto library = CublasLtLibrary::Open("");
  ASSERT_FALSE(library.has_value());
  EXPECT_EQ(library.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(library.error().message,
              AllOf(HasSubstr("/nowhere/libcublasLt.so.13"), HasSubstr("install the CUDA toolkit"),
                    HasSubstr("SLUICE_CUBLASLT")));
}

TEST(CublasLtLibrary, LooksAmongThePackagesOfThePythonInThePath) {
  namespace fs = std::filesystem;
  const fs::path root =
      fs::path(::testing::TempDir()) / fmt::format("sluice-cublaslt-python-{}", getpid());
  const fs::path folder = root / "env/lib/python3.12/site-packages/nvidia/cu13/lib";
  fs::create_directories(folder);
  fs::create_directories(root / "empty");
  fs::create_directories(root / "env/bin");
  std::ofstream(root / "env/bin/python3") << "";
  const std::string found = (folder / "libcublasLt.so.13").string();
  const auto files_of = [](const std::string& path) {
    const ScopedVariable variable("PATH", path.c_str());
    return CublasLtLibrary::UsualFiles();
  };
  const std::vector<std::string> files =
      files_of((root / "empty").string() + "::" + (root / "env/bin").string());
  EXPECT_THAT(files_of((root / "empty").string()), Not(Contains(found)));
  fs::remove_all(root);
  EXPECT_EQ(files.front(), "libcublasLt.so.13");
  EXPECT_THAT(files, Contains(found));
  EXPECT_THAT(files, Contains("/usr/local/cuda/lib64/libcublasLt.so.12"));
}

// The links are /usr/local/bin/python3 -> /opt/torch/bin/python3 -> /usr/bin/python3.11. In PATH,
// they come after a python3 that is not a link and has no packages. CUDA 12's wheel is in the
// virtual environment, CUDA 13's with the system's Python.
TEST(CublasLtLibrary, LooksWhereAPython3ThatIsALinkHasItsPackages) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(::testing::TempDir()) / "cublaslt_links";
  fs::remove_all(root);
  const fs::path twelve = root / "torch/lib/python3.11/site-packages/nvidia/cublas/lib";
  const fs::path thirteen = root / "usr/lib/python3.11/dist-packages/nvidia/cu13/lib";
  const fs::path own = root / "home/.local/lib/python3.12/site-packages/nvidia/cu13/lib";
  for (const fs::path& folder : {twelve, thirteen, own}) fs::create_directories(folder);
  for (const char* folder : {"shims", "local/bin", "torch/bin", "usr/bin"})
    fs::create_directories(root / folder);
  std::ofstream(root / "shims/python3") << "";
  std::ofstream(root / "usr/bin/python3.11") << "";
  fs::create_symlink(root / "usr/bin/python3.11", root / "torch/bin/python3");
  fs::create_symlink("../../torch/bin/python3", root / "local/bin/python3");
  const ScopedVariable home("HOME", (root / "home").string().c_str());
  const ScopedVariable path("PATH", fmt::format("{0}/shims:{0}/local/bin", root.string()).c_str());
  const std::vector<std::string> files = CublasLtLibrary::UsualFiles();
  const auto place = [&](const fs::path& folder, const char* name) {
    return std::find(files.begin(), files.end(), (folder / name).string()) - files.begin();
  };
  EXPECT_LT(place(thirteen, "libcublasLt.so.13"), std::ssize(files));
  EXPECT_LT(place(own, "libcublasLt.so.13"), std::ssize(files));
  EXPECT_LT(place(twelve, "libcublasLt.so.12"), std::ssize(files));
  EXPECT_LT(place(twelve, "libcublasLt.so.13"), place(thirteen, "libcublasLt.so.13"))
      << "the environment's packages hide the Python's";
  EXPECT_EQ(std::count(files.begin(), files.end(), (thirteen / "libcublasLt.so.13").string()), 1);
  fs::remove_all(root);
}

TEST(CublasLtLibrary, RefusesWhatIsNoCublasLt) {
  ResetFakeCublasLt();
  const auto other = CublasLtLibrary::Open("libm.so.6");
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(other.error().message, HasSubstr("no function cublasLtGetVersion"));
}

TEST(CublasLtLibrary, RefusesOldVersions) {
  ResetFakeCublasLt().version = 111103;
  const auto old = CublasLtLibrary::Open(SLUICE_FAKE_CUBLASLT);
  ASSERT_FALSE(old.has_value());
  EXPECT_EQ(old.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(old.error().message, HasSubstr("111103"));
}

// Creating the library's records needs no GPU, so the real library confirms our constants.
TEST(CublasLtLibrary, OpensTheRealOneWhereThereIsOne) {
  const auto library = CublasLtLibrary::Open("");
  if (!library.has_value())
    GTEST_SKIP() << "no libcublasLt.so.13 or .12 here: install the CUDA toolkit's cuBLAS to test";
  EXPECT_THAT((*library)->Describe(), ::testing::ContainsRegex("cuBLASLt 1[23]\\."));
  const cublaslt::Functions& f = (*library)->functions();
  EXPECT_STREQ(f.status_name(cublaslt::kNotSupported), "CUBLAS_STATUS_NOT_SUPPORTED");

  cublaslt::Layout layout = nullptr;
  ASSERT_EQ(f.layout_create(&layout, cublaslt::kTypeE4M3, 64, 32, 64), cublaslt::kSuccess);
  EXPECT_EQ(f.layout_destroy(layout), cublaslt::kSuccess);

  cublaslt::Operation operation = nullptr;
  ASSERT_EQ(f.operation_create(&operation, cublaslt::kComputeF32, cublaslt::kTypeF32),
            cublaslt::kSuccess);
  const auto set = [&](int attribute, auto value) {
    EXPECT_EQ(f.operation_set(operation, attribute, &value, sizeof(value)), cublaslt::kSuccess)
        << attribute;
    EXPECT_NE(f.operation_set(operation, attribute, &value, sizeof(value) + 1), cublaslt::kSuccess)
        << attribute << " has another size";
  };
  set(cublaslt::kTransposeA, cublaslt::kTransposed);
  set(cublaslt::kTransposeB, cublaslt::kPlain);
  set(cublaslt::kFastAccumulation, int8_t{0});
  set(cublaslt::kScalePointerA, static_cast<const void*>(nullptr));
  set(cublaslt::kScalePointerB, static_cast<const void*>(nullptr));
  if ((*library)->version() >= cublaslt::kOuterVectorVersion) {
    set(cublaslt::kScaleModeA, cublaslt::kScaleOuterVector);
    set(cublaslt::kScaleModeB, cublaslt::kScaleOuterVector);
  }
  EXPECT_EQ(f.operation_destroy(operation), cublaslt::kSuccess);

  cublaslt::Preference preference = nullptr;
  ASSERT_EQ(f.preference_create(&preference), cublaslt::kSuccess);
  const auto prefer = [&](int attribute, auto value) {
    EXPECT_EQ(f.preference_set(preference, attribute, &value, sizeof(value)), cublaslt::kSuccess)
        << attribute;
  };
  prefer(cublaslt::kMaxWorkspace, uint64_t{1} << 25);
  prefer(cublaslt::kAlignmentA, uint32_t{16});
  prefer(cublaslt::kAlignmentB, uint32_t{16});
  prefer(cublaslt::kAlignmentC, uint32_t{16});
  prefer(cublaslt::kAlignmentD, uint32_t{16});
  EXPECT_EQ(f.preference_destroy(preference), cublaslt::kSuccess);
}

}  // namespace
}  // namespace sluice::device
