// Runs the fuzz target on mutated seeds: no file may crash or hang the program.
#include <cstdint>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tokenizer/tokenizer_fuzz.cc"  // The target itself, so that both run the same code.

namespace {

constexpr char kSeed[] =
    R"json({"version":"1.0","added_tokens":[{"id":9,"content":"<s>","single_word":false,"lstrip":true,"rstrip":false,)json"
    R"json("normalized":true,"special":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},)json"
    R"json({"type":"Replace","pattern":{"Regex":"\\s+"},"content":" "},{"type":"Strip","strip_left":true,"strip_right":true}]},)json"
    R"json("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)json"
    R"json("(?i:'s)|[^\\r\\n\\p{Lu}]?[a-z&&[^b]]+|\\p{N}{1,3}| ?[^\\s]+|\\s+(?!\\S)"},"behavior":"MergedWithNext","invert":false},)json"
    R"json({"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true}]},)json"
    R"json("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)json"
    R"json({"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[9],"tokens":["<s>"]}}},)json"
    R"json("decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Metaspace","replacement":"_"},)json"
    R"json({"type":"Strip","content":" ","start":1,"stop":1}]},"model":{"type":"BPE","unk_token":"u","fuse_unk":true,)json"
    R"json("byte_fallback":true,"ignore_merges":false,"vocab":{"u":0,"a":1,"b":2,"ab":3,"_":4,"_ab":5,"<0x41>":6,"1":7,"'":8},)json"
    R"json("merges":["a b",["_","ab"]]}})json";

TEST(TokenizerFuzzTest, MutatedFiles) {
  std::mt19937 random(1);
  const std::string seed = std::string(kSeed) + '\0' + "  ab A's 12 <s> \xC3\xA9\xFF  b_ab\n";
  ASSERT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(seed.data()), seed.size()), 0);
  static constexpr char kBytes[] = "{}[]\",:0123456789abcux\\+*?(|)^$-&pP<>\xC3\xE2\x80";
  for (int i = 0; i < 2000; ++i) {
    std::string input = seed;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int k = 0; k < edits; ++k) {
      const size_t at = random() % input.size();
      switch (random() % 4) {
        case 0: input[at] = kBytes[random() % (sizeof(kBytes) - 1)]; break;
        case 1: input.erase(at, 1 + random() % 8); break;
        case 2: input.insert(at, 1, kBytes[random() % (sizeof(kBytes) - 1)]); break;
        default: input.insert(at, input.substr(random() % input.size(), random() % 40)); break;
      }
      if (input.empty()) input = seed;
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
}

constexpr char kWordPieceSeed[] =
    R"json({"version":"1.0","added_tokens":[],"normalizer":{"type":"BertNormalizer","clean_text":true,)json"
    R"json("handle_chinese_chars":true,"strip_accents":null,"lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},)json"
    R"json("post_processor":{"type":"BertProcessing","sep":["[SEP]",3],"cls":["[CLS]",2]},)json"
    R"json("decoder":{"type":"WordPiece","prefix":"##","cleanup":true},"model":{"type":"WordPiece","unk_token":"[UNK]",)json"
    R"json("continuing_subword_prefix":"##","max_input_chars_per_word":9,"vocab":{"[UNK]":0,"a":1,"[CLS]":2,"[SEP]":3,"##b":4}}})json";
constexpr char kUnigramSeed[] =
    R"json({"version":"1.0","added_tokens":[],"normalizer":{"type":"Precompiled","precompiled_charsmap":"CAAAAAAEAAAhAAAAeAA="},)json"
    R"json("pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":true},)json"
    R"json("post_processor":{"type":"RobertaProcessing","sep":["b",2],"cls":["a",1],"trim_offsets":true,"add_prefix_space":true},)json"
    R"json("decoder":null,"model":{"type":"Unigram","unk_id":0,"byte_fallback":true,)json"
    R"json("vocab":[["u",0],["a",-1.5],["b",-2e0],["ab",-2],["_",-3],["<0x41>",-9]]}})json";

constexpr char kSuffixSeed[] =
    R"json({"version":"1.0","added_tokens":[{"id":0,"content":"<s>"},{"id":0,"content":"<t>","special":true}],)json"
    R"json("normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},"decoder":{"type":"BPEDecoder","suffix":"</w>"},)json"
    R"json("model":{"unk_token":"u","continuing_subword_prefix":"#","end_of_word_suffix":"</w>","byte_fallback":true,)json"
    R"json("vocab":{"u":0,"a":1,"#b":2,"#b</w>":3,"ab</w>":4,"a</w>":5,"<0x41>":6,"ab":7},"merges":["a #b</w>","a #b"]}})json";

TEST(TokenizerFuzzTest, MutatedFilesOfOtherModels) {
  std::mt19937 random(2);
  for (const char* seed : {kWordPieceSeed, kUnigramSeed, kSuffixSeed}) {
    const std::string whole = std::string(seed) + '\0' + " ab A b\xC3\xA9 ab_ab!\xE4\xB8\xAD";
    ASSERT_TRUE(sluice::Tokenizer::Parse(seed)) << seed;
    for (int i = 0; i < 600; ++i) {
      std::string input = whole;
      for (uint32_t k = 0; k <= random() % 3; ++k) {
        const size_t at = random() % input.size();
        if (random() % 2 == 0)
          input[at] = static_cast<char>(random() % 128);
        else
          input.insert(at, input.substr(random() % input.size(), random() % 30));
      }
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    }
  }
}

TEST(TokenizerFuzzTest, CutFiles) {
  const std::string seed = kSeed;
  for (size_t size = 0; size < seed.size(); size += 7) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(seed.data()), size);
  }
}

}  // namespace
