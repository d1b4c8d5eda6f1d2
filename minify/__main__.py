"""`python -m minify` is `minify`."""

import sys

from minify.cli import main

if __name__ == "__main__":
    sys.exit(main())
