#include <zmq.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/cache_salt.h"
#include "events/block_hash.h"
#include "events/event_encoder.h"
#include "events/event_publisher.h"
#include "events/event_settings.h"
#include "events/msgpack_writer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Packed(const std::function<void(MsgpackWriter&)>& write) {
  std::string out;
  MsgpackWriter writer(out);
  write(writer);
  return out;
}

std::string Bytes(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) text.push_back(static_cast<char>(byte));
  return text;
}

TEST(MsgpackWriter, WritesTheSmallestForm) {
  const auto number = [](uint64_t value) {
    return Packed([=](MsgpackWriter& out) { out.Unsigned(value); });
  };
  EXPECT_EQ(number(127), Bytes({0x7f}));
  EXPECT_EQ(number(128), Bytes({0xcc, 0x80}));
  EXPECT_EQ(number(256), Bytes({0xcd, 1, 0}));
  EXPECT_EQ(number(65536), Bytes({0xce, 0, 1, 0, 0}));
  EXPECT_EQ(number(uint64_t{1} << 32), Bytes({0xcf, 0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(number(~uint64_t{0}), Bytes({0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}));
  const auto text = [](size_t size) {
    return Packed([=](MsgpackWriter& out) { out.Text(std::string(size, 'x')); }).substr(0, 3);
  };
  EXPECT_EQ(text(31), Bytes({0xbf, 'x', 'x'}));
  EXPECT_EQ(text(32), Bytes({0xd9, 32, 'x'}));
  EXPECT_EQ(text(256), Bytes({0xda, 1, 0}));
  EXPECT_EQ(Packed([](MsgpackWriter& out) { out.Array(15); }), Bytes({0x9f}));
  EXPECT_EQ(Packed([](MsgpackWriter& out) { out.Array(16); }), Bytes({0xdc, 0, 16}));
  EXPECT_EQ(Packed([](MsgpackWriter& out) { out.Array(65536); }), Bytes({0xdd, 0, 1, 0, 0}));
  EXPECT_EQ(Packed([](MsgpackWriter& out) { out.Map(16); }), Bytes({0xde, 0, 16}));
  EXPECT_EQ(Packed([](MsgpackWriter& out) { out.Double(1.5); }),
            Bytes({0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0}));
}

// Expected values: hashlib.sha256 of the CBOR array that block_hash.h describes.
TEST(BlockHash, IsThatOfCbor) {
  const BlockDigest root = RootDigest();
  const std::vector<int32_t> tokens = {1, 2, 300, 70000}, next = {5, 6, 7, 8};
  const BlockDigest first = DigestOfBlock(root, tokens, {});
  EXPECT_EQ(ShortHash(first), 6757273206147034738u);
  EXPECT_EQ(ShortHash(DigestOfBlock(first, next, {})), 2037705195955110920u);
  EXPECT_EQ(ShortHash(DigestOfBlock(root, tokens, {.cache_salt = "s"})), 16577598290765933982u);
  EXPECT_EQ(
      ShortHash(DigestOfBlock(root, tokens, {.adapter = "ad", .serial = 7, .cache_salt = "s"})),
      10900810932205120737u);
}

TEST(EventSettings, NameWhatIsWrong) {
  const auto read = [](const char* text) { return ReadCacheEventSettings(*json::Parse(text)); };
  EXPECT_FALSE(read("{}")->has_value());
  EXPECT_FALSE(read(R"({"enable_kv_cache_events": true, "publisher": "null"})")->has_value());
  const auto settings = read(R"({"enable_kv_cache_events": true, "topic": "kv", "hwm": 5})");
  ASSERT_TRUE(settings && *settings);
  EXPECT_EQ((*settings)->endpoint, "tcp://*:5557");
  EXPECT_EQ((*settings)->topic, "kv");
  EXPECT_EQ((*settings)->hwm, 5);
  const auto problem = [&](const char* text) {
    const auto found = read(text);
    EXPECT_FALSE(found) << text;
    if (found) return std::string();
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(found.error().param, "kv-events-config");
    return found.error().message;
  };
  EXPECT_THAT(problem(R"({"publisher": "kafka"})"), HasSubstr("zmq or null, found 'kafka'"));
  EXPECT_THAT(problem(R"({"hwm": 0})"), HasSubstr("hwm"));
  EXPECT_THAT(problem(R"({"endpoint": "tcp://*"})"), HasSubstr("endpoint: expected tcp://"));
  EXPECT_THAT(problem(R"({"endpoints": "x"})"), HasSubstr("'endpoints' is not known"));
  EXPECT_THAT(problem(R"({"enable_kv_cache_events": 1})"), HasSubstr("--kv-events-config"));
  EXPECT_THAT(problem(R"({"replay_endpoint": "tcp://*:5557"})"), HasSubstr("are the same"));
}

TEST(EventSettings, RanksHaveEndpointsOfTheirOwn) {
  EXPECT_EQ(EndpointOfRank("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(EndpointOfRank("tcp://*:5557", 3), "tcp://*:5560");
  EXPECT_EQ(EndpointOfRank("tcp://*:0", 3), "tcp://*:0");
  EXPECT_EQ(EndpointOfRank("ipc:///run/kv", 3), "ipc:///run/kv_dp3");
  EXPECT_EQ(EndpointOfRank("", 3), "");
}

constexpr int kEventBlock = 4;

std::vector<int32_t> FourTokens(int first) {
  return {first, first + 1, first + 2, first + 3};
}

// A subscriber, or a client that requests a replay.
class Peer {
 public:
  Peer(int type, const std::string& endpoint, int most = 1000)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int wait_ms = 10000;
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &wait_ms, sizeof(wait_ms));
    zmq_setsockopt(socket_, ZMQ_RCVHWM, &most, sizeof(most));
    if (type == ZMQ_SUB) zmq_setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0);
    const size_t port = endpoint.rfind(':');
    EXPECT_EQ(zmq_connect(socket_, ("tcp://127.0.0.1" + endpoint.substr(port)).c_str()), 0);
  }
  ~Peer() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }
  // The frames of a message; empty after a timeout.
  std::vector<std::string> Receive() {
    std::vector<std::string> frames;
    int more = 1;
    size_t size = sizeof(more);
    while (more != 0) {
      std::string frame(1 << 20, '\0');
      const int got = zmq_recv(socket_, frame.data(), frame.size(), 0);
      if (got < 0) return {};
      frame.resize(static_cast<size_t>(got));
      frames.push_back(frame);
      zmq_getsockopt(socket_, ZMQ_RCVMORE, &more, &size);
    }
    return frames;
  }
  void Send(const std::string& frame, bool more) {
    zmq_send(socket_, frame.data(), frame.size(), more ? ZMQ_SNDMORE : 0);
  }

 private:
  void* context_;
  void* socket_;
};

std::string NumberText(uint64_t number) {
  std::string bytes;
  for (int i = 7; i >= 0; --i) bytes.push_back(static_cast<char>(number >> (8 * i)));
  return bytes;
}

std::unique_ptr<CacheEventPublisher> StartPublisher(CacheEventSettings settings) {
  settings.endpoint = settings.replay_endpoint = "tcp://127.0.0.1:0";
  // A local address, which the publisher binds rather than connects to.
  settings.endpoint = "tcp://*:0";
  settings.hash_seed = kDefaultHashSeed;
  auto publisher = CacheEventPublisher::Start(settings, 0);
  EXPECT_TRUE(publisher) << publisher.error().message;
  const std::vector<AttentionSpan> groups = {{}};
  (*publisher)->OnStart(16, kEventBlock, groups);
  return *std::move(publisher);
}

// Published batches are kept, so that a late subscriber can get all of them by a replay.
TEST(CacheEventPublisher, PublishesAndReplays) {
  const auto publisher = StartPublisher({.topic = "kv"});
  publisher->OnStored(0, 3, kNoBlock, FourTokens(1), MakeCacheSalt({.client = "s"}));
  publisher->OnStored(0, 4, 3, FourTokens(5), "s");
  publisher->EndBatch();
  publisher->EndBatch();  // an empty batch is not published
  publisher->OnRemoved(0, 4);
  publisher->EndBatch();
  publisher->OnCleared();
  publisher->EndBatch();
  while (publisher->counts().published < 3) {
  }
  Peer client(ZMQ_REQ, publisher->replay_endpoint());
  client.Send(NumberText(1), false);
  const std::vector<std::string> second = client.Receive();  // without the empty frame
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0], "kv");
  EXPECT_EQ(second[1], NumberText(1));
  EXPECT_THAT(second[2], HasSubstr("BlockRemoved"));
}

std::string EncodedUnsigned(uint64_t number) {
  return Packed([=](MsgpackWriter& out) { out.Unsigned(number); });
}

// A block moves to memory, then to the disk, then back to memory. Each event names the medium.
// Events of stored blocks also contain the tokens and the parent.
TEST(CacheEventEncoder, NamesTheMediumOfTiers) {
  CacheEventEncoder encoder(0, kDefaultHashSeed);
  const TierName second{.digest = {2}}, unknown{.digest = {3}};
  CacheEventBatch batch;
  batch.shape.push_back({16, kEventBlock, {{}}});
  batch.tokens = {1, 2, 300, 70000, 5, 6, 7, 8};
  batch.events = {{.anchor = 3, .first_token = 0}, {.anchor = 4, .parent = 3, .first_token = 4}};
  for (CacheEvent& event : batch.events) event.kind = CacheEvent::Kind::kStored;
  const auto encode = [&](std::vector<CacheEvent> events, std::vector<TierChange> changes) {
    CacheEventBatch next;
    next.tokens = batch.tokens;
    next.events = std::move(events);
    next.tier_changes = std::move(changes);
    return encoder.Encode(next);
  };
  const auto change = [](size_t index) {
    return CacheEvent{.kind = CacheEvent::Kind::kTier, .tier_change = index};
  };
  encoder.Encode(batch);
  const std::string evicted = encode(
      {{.kind = CacheEvent::Kind::kTierName,
        .anchor = 4,
        .parent = 3,
        .first_token = 4,
        .tier_change = 0},
       {.kind = CacheEvent::Kind::kRemoved, .anchor = 4},
       change(1),
       change(2)},
      {{.name = second}, {second, TierMedium::kMemory, true}, {unknown, TierMedium::kDisk, true}});
  const std::string name = EncodedUnsigned(2037705195955110920u);
  const std::string parent = EncodedUnsigned(6757273206147034738u);
  const std::string stored =
      "\xb1parent_block_hash" + parent + "\xa9token_ids" + Bytes({0x94, 5, 6, 7, 8}) + "\xaa";
  EXPECT_EQ(evicted[10], '\x92')
      << "removed from GPU, stored in memory; nothing of the unknown one";
  EXPECT_THAT(evicted, HasSubstr(name + stored.substr(0, stored.size() - 1)));
  EXPECT_THAT(evicted, HasSubstr("\xa6medium\xa3"
                                 "CPU"));
  const std::string moved =
      encode({change(0), change(1), change(1)},
             {{second, TierMedium::kMemory, false}, {second, TierMedium::kDisk, true}});
  EXPECT_EQ(moved[10], '\x92') << "what is known already is not told again";
  EXPECT_THAT(moved, HasSubstr("\xa6medium\xa7STORAGE"));
  EXPECT_THAT(moved, HasSubstr(stored));
  EXPECT_THAT(encode({change(0)}, {{second, TierMedium::kDisk, false}}),
              HasSubstr("\xac"
                        "BlockRemoved\xac"
                        "block_hashes\x91" +
                        name + "\xa6medium\xa7STORAGE"));
  encode({{.kind = CacheEvent::Kind::kCleared}}, {});
  EXPECT_EQ(encode({change(0)}, {{second, TierMedium::kDisk, true}})[10], '\x90');
}

TEST(CacheEventPublisher, ReplaysUpToTheEnd) {
  const auto publisher = StartPublisher({.buffer_steps = 2});
  for (int i = 0; i < 5; ++i) {
    publisher->OnStored(0, i, kNoBlock, FourTokens(i), "");
    publisher->EndBatch();
  }
  while (publisher->counts().published < 5) {
  }
  Peer client(ZMQ_DEALER, publisher->replay_endpoint());
  client.Send("bad", false);  // is ignored
  client.Send("", true);
  client.Send(NumberText(0), false);
  std::vector<std::string> numbers;
  for (int i = 0; i < 3; ++i) {
    const std::vector<std::string> frames = client.Receive();
    ASSERT_EQ(frames.size(), 4u);
    numbers.push_back(frames[2]);
  }
  EXPECT_THAT(numbers, ElementsAre(NumberText(3), NumberText(4), NumberText(~uint64_t{0})));
}

// If the queue is full, a batch is dropped, and the next one contains the whole state.
TEST(CacheEventPublisher, TellsEverythingAfterADrop) {
  CacheEventSettings settings;
  settings.max_queue_size = 1;
  const auto publisher = StartPublisher(settings);
  int32_t next = 0;
  while (publisher->counts().dropped == 0) {
    for (int i = 0; i < 16; ++i) publisher->OnStored(0, i, kNoBlock, FourTokens(next++), "");
    publisher->EndBatch();
    for (int i = 0; i < 16; ++i) publisher->OnRemoved(0, i);
    if (publisher->counts().dropped == 0) publisher->EndBatch();
  }
  while (!publisher->wants_everything()) {
  }
  const uint64_t before = publisher->counts().published;
  publisher->OnCleared();
  publisher->OnStored(0, 0, kNoBlock, FourTokens(0), "");
  publisher->EndBatch();
  EXPECT_FALSE(publisher->wants_everything());
  while (publisher->counts().published <= before) {
  }
}

// A subscriber that does not read misses batches, which are counted; others get all of them.
TEST(CacheEventPublisher, ASlowSubscriberMissesWhatAnotherGets) {
  CacheEventSettings settings;
  settings.hwm = 10;
  const auto publisher = StartPublisher(settings);
  Peer slow(ZMQ_SUB, publisher->endpoint(), 1);
  uint64_t published = 0;
  std::vector<int32_t> tokens(kEventBlock);
  while (publisher->counts().missed == 0) {
    for (int i = 0; i < 16; ++i) publisher->OnStored(0, i, kNoBlock, tokens, "");
    for (int i = 0; i < 16; ++i) publisher->OnRemoved(0, i);
    publisher->EndBatch();
    ++published;
    while (publisher->counts().published < published) {
    }
  }
  EXPECT_EQ(publisher->counts().dropped, 0u);
}

TEST(CacheEventPublisher, RefusesAnEndpointThatIsTaken) {
  const auto publisher = StartPublisher({});
  CacheEventSettings settings;
  settings.endpoint = publisher->endpoint();
  settings.endpoint.replace(0, settings.endpoint.rfind(':'), "tcp://*");
  const auto second = CacheEventPublisher::Start(settings, 0);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kAddressInUse);
  EXPECT_THAT(second.error().message, HasSubstr("choose another endpoint"));
}

}  // namespace
}  // namespace sluice
