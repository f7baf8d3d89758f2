"""`raychains evaluate` as a Ray job, evaluate a run's finished chains; the options and the exit status are the
command's.

ray job submit --working-dir . -- python jobs/evaluate.py s3://bucket/runs/runs/NAME
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # The checkout in this folder's place: raychains need not be installed, and `import evaluate` finds no script.
    sys.path[:] = [str(here.parent), *(p for p in sys.path if Path(p).resolve() != here)]
    from raychains.cli import main

    sys.exit(main(["evaluate", *sys.argv[1:]]))
