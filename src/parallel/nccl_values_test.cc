// Compares the declarations of nccl_library.h with NCCL's own header, if it is installed.
#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#include "parallel/nccl_library.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)

#include <nccl.h>

namespace sluice::nccl {
namespace {

static_assert(kSuccess == ncclSuccess && kSystemError == ncclSystemError);
static_assert(kInvalidArgument == ncclInvalidArgument && kInvalidUsage == ncclInvalidUsage);
static_assert(kRemoteError == ncclRemoteError && kInProgress == ncclInProgress);
static_assert(kBytes == ncclUint8);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(UniqueId::bytes) == NCCL_UNIQUE_ID_BYTES);
// Newer versions of the structure begin with the same members.
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));

// Whether two functions have the same calling convention: their parameters have the same sizes and
// the same kinds (pointer, structure, number).
// NOLINTBEGIN(bugprone-sizeof-expression,misc-redundant-expression): of any two types
template <typename Ours, typename Theirs>
constexpr bool kIsSame =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> ==
                                          std::is_pointer_v<Theirs>&& std::is_class_v<Ours> ==
                                          std::is_class_v<Theirs>;
// NOLINTEND(bugprone-sizeof-expression,misc-redundant-expression)
template <typename Ours, typename Theirs>
struct IsSameFunction : std::false_type {};
template <typename R, typename... Ours, typename S, typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct IsSameFunction<R (*)(Ours...), S (*)(Theirs...)>
    : std::bool_constant<kIsSame<R, S> && (kIsSame<Ours, Theirs> && ...)> {
};

#define EXPECT_SAME_FUNCTION(ours, theirs) \
  static_assert(IsSameFunction<decltype(Functions::ours), decltype(&(theirs))>::value)
EXPECT_SAME_FUNCTION(get_version, ncclGetVersion);
EXPECT_SAME_FUNCTION(get_unique_id, ncclGetUniqueId);
EXPECT_SAME_FUNCTION(init_rank, ncclCommInitRankConfig);
EXPECT_SAME_FUNCTION(abort, ncclCommAbort);
EXPECT_SAME_FUNCTION(get_async_error, ncclCommGetAsyncError);
EXPECT_SAME_FUNCTION(error_string, ncclGetErrorString);
EXPECT_SAME_FUNCTION(last_error, ncclGetLastError);
EXPECT_SAME_FUNCTION(group_start, ncclGroupStart);
EXPECT_SAME_FUNCTION(group_end, ncclGroupEnd);
EXPECT_SAME_FUNCTION(all_gather, ncclAllGather);
EXPECT_SAME_FUNCTION(broadcast, ncclBroadcast);
EXPECT_SAME_FUNCTION(send, ncclSend);
EXPECT_SAME_FUNCTION(receive, ncclRecv);

// The initializer of nccl.h begins with the same values.
TEST(NcclValues, AreThoseOfTheHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(Config().magic, theirs.magic);
  EXPECT_LE(Config().version, theirs.version);
}

}  // namespace
}  // namespace sluice::nccl

#else

TEST(NcclValues, AreThoseOfTheHeader) {
  GTEST_SKIP() << "no nccl.h and cuda_runtime.h here: install NCCL's and CUDA's headers to compare";
}

#endif
