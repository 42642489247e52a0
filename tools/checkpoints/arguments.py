"""Reads the command line of the scripts that write test data."""
import sys


def arguments(usage, least=1):
    """The arguments. Ends the program with `usage` on an option, such as --help, and on fewer than `least` arguments, so that nothing
    is written to a folder of an option's name."""
    given = sys.argv[1:]
    if any(word in ("-h", "--help") for word in given):
        print(usage.strip())
        sys.exit(0)
    if len(given) < least or any(word.startswith("-") for word in given):
        print(usage.strip(), file=sys.stderr)
        sys.exit(2)
    return given
