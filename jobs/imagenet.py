"""cSG-MCMC's Table 3 as a Ray job: SGDM, Snapshot-SGDM, SGHMC and cSGHMC on ImageNet; the options are those of compare.

ray job submit --working-dir . -- python jobs/imagenet.py --store s3://bucket/runs --data-root s3://bucket/data
--gpus-per-chain 8

--preset imagenet-emcmc and --preset imagenet-atmc run Entropy-MCMC's and ATMC's settings instead.
docs/how-to/imagenet.md
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    # The checkout in this folder's place: raychains need not be installed, and no script here is imported by its name.
    sys.path[:] = [str(here.parent), *(p for p in sys.path if Path(p).resolve() != here)]
    from raychains.cli import main

    given = sys.argv[1:]
    named = any(a == "--preset" or a.startswith("--preset=") for a in given)
    sys.exit(main(["compare", *([] if named else ["--preset", "imagenet-table3"]), *given]))
