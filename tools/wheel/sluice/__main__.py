"""`python -m sluice ARGS` runs `sluice ARGS`."""
from . import main

main()
