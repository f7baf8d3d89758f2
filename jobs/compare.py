"""`raychains compare` as a Ray job, parallel against single chains at equal cost; the options and the exit status are
the command's.

ray job submit --working-dir . -- python jobs/compare.py --task digits --store s3://bucket/runs
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # The checkout in this folder's place: raychains need not be installed, and `import compare` finds no script.
    sys.path[:] = [str(here.parent), *(p for p in sys.path if Path(p).resolve() != here)]
    from raychains.cli import main

    sys.exit(main(["compare", *sys.argv[1:]]))
