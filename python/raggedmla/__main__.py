"""`python -m raggedmla ...`: the command line of the library (docs/cli.md)."""

import sys

from . import _core


def main() -> int:
    run = getattr(_core, "run_command_line", None)
    if run is None:
        sys.exit("this package was built without the command line: it needs CLI11, fmt and nlohmann_json at build time")
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
