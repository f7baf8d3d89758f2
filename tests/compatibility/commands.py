"""The commands whose results lie in store_v0.tar.gz, without their names and stores."""

DIGITS = "--task digits --task-settings train=1700 hidden=[4] --batch-size 100"
FINISHED = (
    f"compare {DIGITS} --sampler sghmc --chains 2 --epochs 20 --cycles 2 --exploration .5 --samples-per-cycle 2 --lr .3"
)
"""Repeats 0 and 1 of it are in the store."""
MEASURES = ("calibration", "diagnostics", "diversity")
"""Of that run."""
INTERRUPTED = (
    f"run {DIGITS} --sampler csghmc --precision fp64 --chains 3 --repeats 1 --epochs 300 --cycles 6 "
    "--samples-per-cycle 2 --concurrent 1 --checkpoint-every .1"
)
"""Killed while its second chain ran. In double precision the other CPUs' rounding changes little."""
DENSITY = "run --task mixture25 --sampler csghmc --chains 2 --repeats 2 --steps 2000 --cycles 4"
SWEEP = f"sweep {DIGITS} --sampler csghmc --epochs 8 --samples-per-cycle 1 --grid exploration=0,.5 cycles=1,2"
OWN = "run --task mytask:make_task --sampler emcmc --epochs 4 --chains 1"
