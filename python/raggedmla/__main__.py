"""`python -m raggedmla ...`: the command line of the library."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).with_name("bin") / "raggedmla"
    if not program.exists():
        sys.exit("this build of the package has no command line: build it with RAGGEDMLA_TOOLS=ON")
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()
