#include "models/step_message.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr StepLimits kLimits{.max_rows = 64,
                             .max_slices = 4,
                             .max_context = 128,
                             .max_logit_rows = 16,
                             .block_size = 4,
                             .num_groups = 2,
                             .num_blocks = 50,
                             .vocab_size = 1000};

// A step and the memory that it points to.
struct TestStep {
  std::vector<int32_t> tokens, positions, logit_rows;
  std::vector<kernels::AttentionSlice> slices;
  StepInput input() const { return {tokens, positions, slices, logit_rows, 2, {}}; }
};

// A sequence of the engine. Its block tables do not move during its lifetime.
struct TestSequence {
  explicit TestSequence(int32_t first_block) {
    for (auto& table : tables) {
      table.reserve(32);
      for (int32_t i = 0; i < 32; ++i) table.push_back((first_block++) % 50);
    }
  }
  int32_t context = 0;
  std::array<std::vector<int32_t>, 2> tables;
};

void Add(TestStep& step, TestSequence& sequence, int32_t num_tokens) {
  const auto first = static_cast<int64_t>(step.tokens.size());
  for (int32_t i = 0; i < num_tokens; ++i) {
    step.tokens.push_back((sequence.context * 7 + i) % 1000);
    step.positions.push_back(sequence.context + i);
  }
  step.slices.push_back({first, num_tokens, sequence.context, sequence.tables[0].data()});
  step.logit_rows.push_back(static_cast<int32_t>(step.tokens.size()) - 1);
  sequence.context += num_tokens;
}

void AddSecondGroup(TestStep& step, const std::vector<TestSequence*>& sequences) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    kernels::AttentionSlice slice = step.slices[i];
    slice.block_table = sequences[i]->tables[1].data();
    step.slices.push_back(slice);
  }
}

void ExpectEqual(const StepInput& found, const StepInput& expected) {
  EXPECT_TRUE(std::ranges::equal(found.tokens, expected.tokens));
  EXPECT_TRUE(std::ranges::equal(found.positions, expected.positions));
  EXPECT_TRUE(std::ranges::equal(found.logit_rows, expected.logit_rows));
  ASSERT_EQ(found.slices.size(), expected.slices.size());
  for (size_t i = 0; i < found.slices.size(); ++i) {
    const kernels::AttentionSlice& a = found.slices[i];
    const kernels::AttentionSlice& b = expected.slices[i];
    EXPECT_EQ(a.first_row, b.first_row);
    EXPECT_EQ(a.num_tokens, b.num_tokens);
    EXPECT_EQ(a.context, b.context);
    const auto blocks = static_cast<size_t>((b.context + b.num_tokens + 3) / 4);
    EXPECT_TRUE(std::equal(a.block_table, a.block_table + blocks, b.block_table));
  }
}

TEST(StepMessageTest, ManyStepsArriveAsTheyWere) {
  StepEncoder encoder(kLimits);
  StepDecoder decoder(kLimits);
  std::mt19937 random(7);
  std::vector<std::unique_ptr<TestSequence>> sequences;
  for (int round = 0; round < 300; ++round) {
    // Sequences begin, end and change their order; tables change in the middle.
    while (sequences.size() < 1 + random() % 4)
      sequences.push_back(std::make_unique<TestSequence>(static_cast<int32_t>(random() % 50)));
    if (random() % 4 == 0) std::swap(sequences.front(), sequences.back());
    if (random() % 8 == 0) sequences.front()->tables[1][0] = -1;
    TestStep step;
    std::vector<TestSequence*> members;
    for (const auto& sequence : sequences) {
      Add(step, *sequence, 1 + static_cast<int32_t>(random() % 8));
      members.push_back(sequence.get());
    }
    AddSecondGroup(step, members);
    const auto message = encoder.Encode(step.input());
    EXPECT_LE(static_cast<int64_t>(message.size()), kLimits.max_bytes());
    const auto found = decoder.Decode(message);
    ASSERT_TRUE(found) << found.error().message;
    ExpectEqual(**found, step.input());
    std::erase_if(sequences, [&](const auto& sequence) {
      return sequence->context > 110 || random() % 16 == 0;
    });
  }
}

StepLimits ImageLimits() {
  StepLimits limits = kLimits;
  limits.num_groups = 1;
  limits.image_rows = 5;
  limits.image_row_width = 3;
  limits.num_axes = 2;
  return limits;
}

// A second step reads rows that the first step stored.
TEST(StepMessageTest, RowsOfImagesAreSentOnce) {
  StepEncoder encoder(ImageLimits());
  StepDecoder decoder(ImageLimits());
  const std::vector<int32_t> tokens{5, 6, 7, 8}, positions{4, 5, 6, 0}, table(8, 2), other(8, 3);
  const std::vector<kernels::SeenSpan> spans{{0, 2}, {5, 7}, {9, 11}};
  const std::vector<kernels::AttentionSlice> slices{{0, 3, 4, table.data(), spans.data(), 3},
                                                    {3, 1, 0, other.data(), spans.data(), 0}};
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<StoredImageRow> stored{{4, values.data()}, {0, values.data() + 3}};
  const std::vector<ImageRow> first{{1, values.data(), 4}}, second{{2, values.data() + 3, 0}};
  const std::vector<int32_t> axes{1, 2, 3, 0, 1, 1, 2, 0};
  StepInput input{tokens, positions, slices, {}, 1, {}};
  input.stored_image_rows = stored;
  input.image_rows = first;
  input.rope_positions = axes;
  auto found = decoder.Decode(encoder.Encode(input));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ((*found)->slices[0].num_spans, 1);
  EXPECT_EQ((*found)->slices[0].spans[0].begin, 5);
  EXPECT_EQ((*found)->slices[0].spans[0].end, 7);
  EXPECT_EQ((*found)->slices[1].num_spans, 0);
  EXPECT_EQ((*found)->stored_image_rows.size(), 2u);
  ASSERT_EQ((*found)->image_rows.size(), 1u);
  EXPECT_EQ((*found)->image_rows[0].row, 1);
  EXPECT_TRUE(std::equal(values.begin(), values.begin() + 3, (*found)->image_rows[0].values));
  EXPECT_TRUE(std::ranges::equal((*found)->rope_positions, axes));
  input.stored_image_rows = {};
  input.image_rows = second;
  input.rope_positions = {};
  const std::span<const std::byte> message = encoder.Encode(input);
  found = decoder.Decode(message);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ((*found)->image_rows.size(), 1u);
  EXPECT_EQ((*found)->image_rows[0].place, 0);
  EXPECT_TRUE(std::equal(values.begin() + 3, values.end(), (*found)->image_rows[0].values));
  EXPECT_TRUE((*found)->rope_positions.empty());
  input.image_rows = {};
  const std::vector<kernels::AttentionSlice> plain{{0, 4, 4, table.data()}};
  const std::vector<int32_t> following{4, 5, 6, 7};
  input.slices = plain;
  input.positions = following;
  found = decoder.Decode(encoder.Encode(input));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE((*found)->image_rows.empty() && (*found)->stored_image_rows.empty());
}

TEST(StepMessageTest, SlotsOfAdaptersTravel) {
  StepLimits limits = kLimits;
  limits.num_groups = 1;
  limits.num_adapters = 3;
  StepEncoder encoder(limits);
  StepDecoder decoder(limits);
  const std::vector<int32_t> tokens{5, 6, 7}, positions{0, 1, 0}, table(8, 2), other(8, 3);
  const std::vector<kernels::AttentionSlice> slices{{0, 2, 0, table.data()},
                                                    {2, 1, 0, other.data()}};
  for (const std::vector<int32_t>& adapters : {std::vector<int32_t>{2, -1}, {}, {-1, 0}, {1, 1}}) {
    StepInput input{tokens, positions, slices, {}, 1, {}};
    input.adapters = adapters;
    const auto found = decoder.Decode(encoder.Encode(input));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_TRUE(std::ranges::equal((*found)->adapters, adapters));
  }
  const auto refusal = [&](std::vector<int> numbers) {
    std::vector<std::byte> bytes;
    for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
    const auto step = StepDecoder(limits).Decode(bytes);
    return step ? "" : step.error().message;
  };
  EXPECT_THAT(refusal({1, 1, 0, 1, 0, 2}), HasSubstr("whether adapters follow"));
  EXPECT_THAT(refusal({1, 1, 0, 1, 0, 1, 4}), HasSubstr("an adapter's slot: expected at most 3"));
}

TEST(StepMessageTest, ASequenceThatDecodesCostsFewBytes) {
  StepLimits limits = kLimits;
  limits.num_groups = 1;
  limits.max_context = 100'000;
  StepEncoder encoder(limits);
  std::vector<int32_t> table(25'000, 3);
  const auto encode = [&](int32_t context) {
    const std::vector<int32_t> tokens{5}, positions{context}, rows{0};
    const std::vector<kernels::AttentionSlice> slices{{0, 1, context, table.data()}};
    return encoder.Encode({tokens, positions, slices, rows, 1, {}}).size();
  };
  EXPECT_GT(encode(90'000), 22'000U);
  EXPECT_LT(encode(90'001), 16U);
}

TEST(StepMessageTest, WhatNoEncoderWroteIsRefused) {
  const auto refusal = [](std::vector<int> numbers) {
    std::vector<std::byte> bytes;
    for (const int number : numbers) bytes.push_back(static_cast<std::byte>(number));
    StepDecoder decoder(kLimits);
    const auto step = decoder.Decode(bytes);
    return step ? "" : step.error().message;
  };
  EXPECT_THAT(refusal({}), HasSubstr("expected rows, found the end"));
  EXPECT_THAT(refusal({65, 1, 1}), HasSubstr("rows: expected at most 64, found 65"));
  EXPECT_THAT(refusal({1, 5, 1}), HasSubstr("slices: expected at most 4"));
  EXPECT_THAT(refusal({2, 1, 1, 1, 0}), HasSubstr("expected 2 rows in slices, found 1"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 0, 8}), HasSubstr("a block table's number"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 0, 0, 1}), HasSubstr("entries that are kept"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 0, 0, 0, 51}), HasSubstr("a block: expected at most 50"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1}), HasSubstr("a second time"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}),
              HasSubstr("does not end"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 5, 1}), HasSubstr("a logit row"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 5, 0, 0}), HasSubstr("expected the end"));
  EXPECT_EQ(refusal({1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 5, 0}), "");
}

TEST(StepMessageTest, CarriesWhatBecomesOfStates) {
  StepLimits limits = kLimits;
  limits.num_states = 5;
  TestStep step;
  TestSequence a(0), b(7);
  Add(step, a, 3);
  Add(step, b, 5);
  AddSecondGroup(step, {&a, &b});
  const std::vector<StateSlot> states = {{.slot = 4, .is_new = true}, {.slot = 0}};
  const std::vector<StateCopy> copies = {{.from = 3, .to = 0}, {.from = 2, .to = 1}};
  const std::vector<StateSnapshot> snapshots = {{.slice = 1, .rows = 5, .slot = 2}};
  StepInput input = step.input();
  input.states = states;
  input.state_copies = copies;
  input.state_snapshots = snapshots;
  StepEncoder encoder(limits);
  const std::span<const std::byte> message = encoder.Encode(input);
  EXPECT_LE(std::ssize(message), limits.max_bytes());
  StepDecoder decoder(limits);
  const auto found = decoder.Decode(message);
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ((*found)->states.size(), 2U);
  EXPECT_EQ((*found)->states[0].slot, 4);
  EXPECT_TRUE((*found)->states[0].is_new);
  EXPECT_FALSE((*found)->states[1].is_new);
  ASSERT_EQ((*found)->state_copies.size(), 2U);
  EXPECT_EQ((*found)->state_copies[0].from, 3);
  EXPECT_EQ((*found)->state_copies[1].to, 1);
  ASSERT_EQ((*found)->state_snapshots.size(), 1U);
  EXPECT_EQ((*found)->state_snapshots[0].rows, 5);
  EXPECT_EQ((*found)->state_snapshots[0].slot, 2);

  limits.num_states = 4;  // so slot 4 does not exist
  StepDecoder small(limits);
  const auto refused = small.Decode(message);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the slot of a state"));
}

}  // namespace
}  // namespace sluice
