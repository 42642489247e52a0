// Tests the interpreter with tiny kernels for instructions that only some GPUs' kernels use. Each
// kernel also has faulty versions that the interpreter must detect.
#include "ptx_machine.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace sluice::ptx {
namespace {

struct Args {
  const uint32_t* in;
  uint32_t* out;
};

// Runs a kernel on one block of `threads` threads; returns its results, one per thread.
std::vector<uint32_t> RunTiny(const std::string& body, unsigned threads, bool overlaps = false) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("sluice-ptx-" + std::to_string(getpid()) + ".ptx");
  std::ofstream(path) << R"(.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 128 .b8 memory[];
.visible .entry tiny(
.param .align 8 .b8 tiny_param_0[16]
)
{
.reg .pred %p<8>;
.reg .b32 %r<32>;
.reg .b64 %rd<16>;
ld.param.u64 %rd1, [tiny_param_0];
ld.param.u64 %rd2, [tiny_param_0+8];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 4;
add.s64 %rd4, %rd1, %rd3;
add.s64 %rd5, %rd2, %rd3;
mov.u32 %r2, memory;
shl.b32 %r3, %r1, 2;
add.s32 %r4, %r2, %r3;
)" + body + "ret;\n}\n";
  Program program;
  ReadFile(path, program);
  std::filesystem::remove(path);
  alignas(16) static uint32_t in[512];
  std::iota(std::begin(in), std::end(in), 1000u);
  std::vector<uint32_t> out(threads, 0xDEADu);
  const Args args{in, out.data()};
  const Overlap overlap;
  Machine().Run(program.kernels.at("tiny"), {}, threads, 4096, &args, sizeof(args),
                overlaps ? &overlap : nullptr);
  return out;
}

std::string Without(std::string text, const std::string& piece, const std::string& instead = "") {
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return at == std::string::npos ? text : text.replace(at, piece.size(), instead);
}

#define EXPECT_FOUND(body, threads, message) \
  EXPECT_EXIT(RunTiny(body, threads), ::testing::ExitedWithCode(1), message)

// Warp 0 stores and arrives. Only warp 1 waits for it. Warps 2 and 3 meet at their own barrier.
const char* const kNamedBarriers = R"(
shr.u32 %r5, %r1, 5;
setp.ne.u32 %p1, %r5, 0;
@%p1 bra OTHERS;
st.shared.u32 [%r4], %r1;
bar.arrive 1, 64;
st.global.u32 [%rd5], %r1;
bra END;
OTHERS:
setp.ne.u32 %p2, %r5, 1;
@%p2 bra PAIR;
bar.sync 1, 64;
ld.shared.u32 %r6, [%r4+-128];
st.global.u32 [%rd5], %r6;
bra END;
PAIR:
st.shared.u32 [%r4], %r1;
barrier.sync 2, 64;
xor.b32 %r7, %r3, 128;
add.s32 %r8, %r2, %r7;
ld.shared.u32 %r6, [%r8];
st.global.u32 [%rd5], %r6;
END:
)";

TEST(PtxMachineTest, NamedBarriersLetWarpsMeetInPairs) {
  const std::vector<uint32_t> out = RunTiny(kNamedBarriers, 128);
  for (uint32_t i = 0; i < 128; ++i) {
    const uint32_t expected = i < 32 ? i : i < 64 ? i - 32 : i ^ 32;
    EXPECT_EQ(out[i], expected) << i;
  }
  EXPECT_FOUND(Without(kNamedBarriers, "bar.arrive 1, 64;"), 128, "threads that never come");
  EXPECT_FOUND(Without(kNamedBarriers, "barrier.sync 2, 64;", "barrier.sync 2, 96;"), 128,
               "threads that never come");
  EXPECT_FOUND(Without(kNamedBarriers, "barrier.sync 2, 64;", "barrier.sync 2, 48;"), 128,
               "whole warps");
  EXPECT_NE(RunTiny(Without(kNamedBarriers, "barrier.sync 2, 64;"), 128), out);
}

TEST(PtxMachineTest, ElectsOneLaneOfEachWarp) {
  const std::string body = R"(
setmaxnreg.inc.sync.aligned.u32 240;
mov.u32 %r6, 0;
elect.sync %r7|%p1, 0xffffffff;
@%p1 mov.u32 %r6, 1;
st.global.u32 [%rd5], %r6;
)";
  const std::vector<uint32_t> out = RunTiny(body, 64);
  EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0u), 2u);
  EXPECT_EQ(out[0] + out[32], 2u);
  EXPECT_FOUND(Without(body, "0xffffffff", "0xffff"), 64, "other than all lanes");
  EXPECT_FOUND(Without(body, "240", "241"), 64, "multiple of 8");
}

// ldmatrix must load what stmatrix stored, transposed or not.
TEST(PtxMachineTest, MatricesAreStoredAsTheyAreLoaded) {
  const std::string body = R"(
ld.global.u32 %r5, [%rd4];
add.s32 %r6, %r5, 32;
add.s32 %r7, %r5, 64;
add.s32 %r8, %r5, 96;
shl.b32 %r9, %r1, 4;
add.s32 %r10, %r2, %r9;
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {%r5, %r6, %r7, %r8};
bar.warp.sync 0xffffffff;
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r11, %r12, %r13, %r14}, [%r10];
xor.b32 %r11, %r11, %r5;
xor.b32 %r12, %r12, %r6;
xor.b32 %r13, %r13, %r7;
xor.b32 %r14, %r14, %r8;
or.b32 %r11, %r11, %r12;
or.b32 %r11, %r11, %r13;
or.b32 %r11, %r11, %r14;
st.global.u32 [%rd5], %r11;
)";
  const std::vector<uint32_t> zeros(32, 0);
  EXPECT_EQ(RunTiny(body, 32), zeros);
  const std::string stored = "x4.shared.b16 [", loaded = "x4.shared.b16 {";
  const std::string transposed = Without(body, stored, "x4.trans.shared.b16 [");
  EXPECT_NE(RunTiny(transposed, 32), zeros);
  EXPECT_EQ(RunTiny(Without(transposed, loaded, "x4.trans.shared.b16 {"), 32), zeros);
  EXPECT_FOUND(Without(body, "add.s32 %r10, %r2, %r9;", "add.s32 %r10, %r4, %r9;"), 32,
               "no multiple");
}

// One thread starts a copy of 256 bytes, and all threads wait for it.
const char* const kBulkCopy = R"(
setp.ne.u32 %p1, %r1, 0;
@%p1 bra WAIT;
mbarrier.init.shared::cta.b64 [%r2+1024], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+1024], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r2+1024];
WAIT:
bar.sync 0;
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2+1024], 0;
@!%p2 bra AGAIN;
ld.shared.u32 %r6, [%r4];
st.global.u32 [%rd5], %r6;
)";

TEST(PtxMachineTest, AnMbarrierCountsTheBytesOfBulkCopies) {
  const std::vector<uint32_t> out = RunTiny(kBulkCopy, 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 1000 + i);
  // Without the wait, the bytes have not arrived yet.
  std::string hasty = Without(kBulkCopy, "@!%p2 bra AGAIN;");
  hasty = Without(hasty, "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2+1024], 0;");
  EXPECT_EXIT(RunTiny(hasty, 64), ::testing::ExitedWithCode(1), "copy to it is under way");
  EXPECT_FOUND(Without(kBulkCopy, "_, [%r2+1024], 256", "_, [%r2+1024], 272"), 64, "never ends");
  EXPECT_FOUND(Without(kBulkCopy, "%p2, [%r2+1024], 0", "%p2, [%r2+1024], 1"), 64,
               "copy to it is under way");
  EXPECT_FOUND(Without(kBulkCopy, "[%rd1], 256,", "[%rd1+4], 256,"), 64, "aligned pieces");
  EXPECT_FOUND(Without(kBulkCopy, "[%rd1], 256, [%r2+1024]", "[%rd1], 256, [%r2+1032]"), 64,
               "no mbarrier");
  EXPECT_FOUND(Without(kBulkCopy, "_, [%r2+1024], 256;",
                       "_, [%r2+1024], 256;\nmbarrier.arrive.shared::cta.b64 _, [%r2+1024];"),
               64, "more arrivals");
  // A phase that ends before its bytes have arrived: waiting does not help.
  EXPECT_EXIT(
      RunTiny(Without(kBulkCopy, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+1024], 256",
                      "mbarrier.arrive.shared::cta.b64 _, [%r2+1024]"),
              64),
      ::testing::ExitedWithCode(1), "copy to it is under way");
}

// Phases alternate: each thread's number passes through shared memory twice.
TEST(PtxMachineTest, PhasesOfAnMbarrierFollowEachOther) {
  const std::string body = R"(
setp.ne.u32 %p1, %r1, 0;
@!%p1 mbarrier.init.shared.b64 [%r2+1024], 64;
bar.sync 0;
xor.b32 %r7, %r3, 128;
add.s32 %r8, %r2, %r7;
st.shared.u32 [%r4], %r1;
mbarrier.arrive.shared.b64 %rd8, [%r2+1024];
FIRST:
mbarrier.test_wait.parity.shared.b64 %p2, [%r2+1024], 0;
@!%p2 bra FIRST;
ld.shared.u32 %r6, [%r8];
add.s32 %r6, %r6, 100;
st.shared.u32 [%r8+512], %r6;
mbarrier.arrive.shared.b64 %rd8, [%r2+1024];
SECOND:
mbarrier.test_wait.parity.shared.b64 %p2, [%r2+1024], 1;
@!%p2 bra SECOND;
ld.shared.u32 %r9, [%r4+512];
st.global.u32 [%rd5], %r9;
)";
  const std::vector<uint32_t> out = RunTiny(body, 64);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i + 100);
  EXPECT_FOUND(Without(body, "1024], 64;", "1024], 65;"), 64, "never ends");
  EXPECT_FOUND(Without(body, "[%r2+1024], 1;", "[%r2+1024], 0;"), 64, "never ends");
}

// A launch that begins before earlier kernels end.
TEST(PtxMachineTest, EarlierKernelsAreAwaitedBeforeMemoryIsUsed) {
  const std::string wait = "griddepcontrol.wait;\n", load = "ld.global.u32 %r6, [%rd4];\n";
  const std::string begin = "griddepcontrol.launch_dependents;\n",
                    store = "st.global.u32 [%rd5], %r6;\n";
  const std::vector<uint32_t> out = RunTiny(begin + wait + load + store, 32, /*overlaps=*/true);
  EXPECT_EQ(out[31], 1031u);
  EXPECT_EQ(RunTiny(load + store, 32), out) << "an ordinary launch";
  const auto expect_found = [](const std::string& body, const char* message) {
    EXPECT_EXIT(RunTiny(body, 32, /*overlaps=*/true), ::testing::ExitedWithCode(1), message);
  };
  expect_found(begin + load + wait + store, "before the thread has waited");
  expect_found(begin + load + store, "before the thread has waited");
  expect_found("mov.u32 %r6, 5;\n" + store + wait, "before the thread has waited");
  expect_found("", "ends without waiting");
}

}  // namespace
}  // namespace sluice::ptx
