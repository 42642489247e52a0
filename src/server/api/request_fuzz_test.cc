// Runs the fuzz target on mutated requests: no body may crash or hang the program.
#include <gtest/gtest.h>

#include <random>
#include <string>

// The target itself, so that both run the same code.
#include "server/api/request_fuzz.cc"  // NOLINT(bugprone-suspicious-include)

namespace {

constexpr const char* kSeeds[] = {
    R"json({"model":"m","input":[{"role":"developer","content":[{"type":"input_text","text":"a"}]},)json"
    R"json({"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"h"}]},)json"
    R"json({"type":"function_call","call_id":"c","namespace":"n","name":"f","arguments":"{}"},)json"
    R"json({"type":"function_call_output","call_id":"c","output":"1"},{"type":"web_search_call"},)json"
    R"json({"type":"mcp_call","id":"m","name":"f","arguments":"{}","output":null},)json"
    R"json({"type":"shell_call","call_id":"s","action":{}},{"type":"item_reference","id":"x"},)json"
    R"json({"type":"shell_call_output","call_id":"s","output":[]}],"instructions":"i",)json"
    R"json("tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f",)json"
    R"json("parameters":{"type":"object"}}]},{"type":"local_shell"}],"tool_choice":"required",)json"
    R"json("text":{"format":{"type":"json_schema","name":"s","schema":{},"strict":true}},)json"
    R"json("reasoning":{"effort":"low"},"include":["message.output_text.logprobs"],)json"
    R"json("metadata":{"k":"v"},"store":true,"background":true,"max_output_tokens":5})json",
    R"json({"model":"m","max_tokens":9,"system":[{"type":"text","text":"s"}],"messages":[)json"
    R"json({"role":"user","content":[{"type":"text","text":"a"}]},{"role":"assistant","content":[)json"
    R"json({"type":"thinking","thinking":"t","signature":"x"},{"type":"tool_use","id":"t","name":)json"
    R"json("f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":)json"
    R"json("t","content":[{"type":"text","text":"7"}]}]}],"tools":[{"name":"f","input_schema":{}}],)json"
    R"json("tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"disabled"},)json"
    R"json("stop_sequences":["x"],"output_config":{"effort":"low"}})json",
    R"json({"model":"m","state":{"a":[1,2.5,null,"\u00e9"]},"instructions":"i","questions":{)json"
    R"json("a":{"type":"choice","instructions":"q","criteria":{"x":"d","y":null}},"b":{"type":)json"
    R"json("noul","criteria":{"true":"t","false":null}},"c":{"type":"score","criteria":["l",)json"
    R"json("h"]}},"chat_template_kwargs":{},"cache_salt":"s","priority":1})json",
    R"json({"model":"m","input":[{"role":"system","content":"s"},{"type":"message","role":"user",)json"
    R"json("content":[{"type":"input_text","text":"a"},{"type":"input_json","data":{"k":[]}}]}],)json"
    R"json("questions":[{"type":"predicate","name":"p","instructions":"q"},{"type":"choice",)json"
    R"json("instructions":[{"type":"input_text","text":"q"}],"choices":[{"value":true},{"value":)json"
    R"json("true","description":"d"}]},{"type":"score","instructions":"q","levels":[{"label":"l"},)json"
    R"json({"label":"h","description":"d"}]}],"prompt_cache_key":"k"})json",
};

int Try(const std::string& body) {
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(body.data()), body.size());
}

TEST(RequestFuzzTest, MutatedBodies) {
  // Pieces of JSON to insert, so that the result is often still JSON.
  static constexpr const char* kPieces[] = {"null",      "[]", "{}", "5",  "\"\"", "true", ",",
                                            "\"type\":", "[",  "}",  "\"", "-1",   "1e9",  "\"x\""};
  std::mt19937 random(1);
  for (const std::string seed : kSeeds) {
    ASSERT_EQ(Try(seed), 0);
    for (int i = 0; i < 3000; ++i) {
      std::string body = seed;
      for (unsigned edits = 1 + random() % 3; edits > 0 && !body.empty(); --edits) {
        const size_t at = random() % body.size();
        // Replaces whole values as often as single bytes.
        const size_t end = random() % 2 == 0 ? at + random() % 3 : body.find_first_of(",}]", at);
        body.replace(at, end == std::string::npos ? 1 : end - at,
                     kPieces[random() % std::size(kPieces)]);
      }
      Try(body);
    }
  }
}

TEST(RequestFuzzTest, CutBodies) {
  for (const std::string seed : kSeeds) {
    for (size_t size = 0; size < seed.size(); size += 5) Try(seed.substr(0, size));
  }
}

}  // namespace
