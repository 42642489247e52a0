#include <string>
#include <vector>

#include "cli/command.h"

int main(int argc, char** argv) {
  return sluice::cli::Main(std::vector<std::string>(argv, argv + argc));
}
