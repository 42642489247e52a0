#include "hub/model_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ModelAddressTest, UnderstandsPagesOfModels) {
  struct Case {
    const char* text;
    const char* id;
    const char* revision;
  };
  for (const Case& want : std::initializer_list<Case>{
           {"https://huggingface.co/Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", ""},
           {"https://huggingface.co/Qwen/Qwen3-0.6B/", "Qwen/Qwen3-0.6B", ""},
           {"https://huggingface.co/gpt2", "gpt2", ""},
           {"https://huggingface.co/gpt2/tree/v1", "gpt2", "v1"},
           {"https://huggingface.co/a/b/tree/main", "a/b", "main"},
           {"https://huggingface.co/a/b/tree/refs%2Fpr%2F7", "a/b", "refs/pr/7"},
           {"https://huggingface.co/a/b/blob/main/config.json", "a/b", "main"},
           {"https://huggingface.co/a/b/resolve/main/model.safetensors?download=true", "a/b",
            "main"},
           {"https://huggingface.co/a/b?library=transformers#usage", "a/b", ""},
           {"https://huggingface.co/a/b/discussions", "a/b", ""},
           {"huggingface.co/a/b", "a/b", ""},
           {"hf.co/a/b", "a/b", ""},
           {"hf://a/b", "a/b", ""},
           {"http://mirror:8080/hub/a/b/tree/x", "a/b", "x"},
       }) {
    const auto reference = ParseModelAddress(want.text, "http://mirror:8080/hub");
    ASSERT_TRUE(reference) << want.text;
    EXPECT_EQ(reference->id, want.id) << want.text;
    EXPECT_EQ(reference->revision, want.revision) << want.text;
  }
}

TEST(ModelAddressTest, RefusesOtherAddresses) {
  for (const char* text :
       {"", "https://huggingface.co", "https://huggingface.co/", "https://example.com/a/b",
        "https://huggingface.co.example.com/a/b", "https://huggingface.co/../..", "a/b", "hf://",
        "file:///etc/passwd", "http://mirror:8080/hubba/a/b"}) {
    EXPECT_FALSE(ParseModelAddress(text, "http://mirror:8080/hub")) << text;
  }
}

TEST(HubIdTest, KnowsIds) {
  for (const char* id : {"gpt2", "meta-llama/Llama-3.2-1B", "Qwen/Qwen3-0.6B", "a_b/c.d"})
    EXPECT_TRUE(IsHubId(id)) << id;
  for (const char* id : {"", "/", "a/", "/a", "a//b", "a/b/c", "a..b", "-a", ".a", "a b", "a--b"})
    EXPECT_FALSE(IsHubId(id)) << id;
}

}  // namespace
}  // namespace sluice
