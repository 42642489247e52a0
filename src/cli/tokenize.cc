#include "tokenizer/tokenize_tool.h"

#include <iostream>

#include "cli/command.h"
#include "cli/configs.h"
#include "tokenizer/tokenizer.h"

namespace sluice::cli {

Result<int> RunTokenizeCommand(const options::Settings& settings) {
  ASSIGN_OR_RETURN(const ModelArgument model,
                   ResolveModelArgument(settings, ModelPart::kTokenizer));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   Tokenizer::Load(model.tokenizer_folder));
  std::ios::sync_with_stdio(false);
  RETURN_IF_ERROR(RunTokenize(*tokenizer, settings.Flag("decode"), std::cin, std::cout));
  std::cout.flush();
  return 0;
}

}  // namespace sluice::cli
