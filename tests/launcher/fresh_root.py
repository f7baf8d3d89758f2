"""Runs the steps of deploy/Dockerfile in a fresh Debian, where no engine is at hand: ``python -m
tests.launcher.fresh_root FOLDER``.

FOLDER must not exist. `debootstrap` makes a root in it (as root, on Debian or Ubuntu, ten minutes and 7 GB); Debian 12
has the Python of the Dockerfile's base. Each step runs in it as a build would run it: COPY from this checkout, RUN in
the Dockerfile's shell, as its user. In the end ``raychains --help`` does. What the image's base has beside that, layers
and platforms are not tried.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.launcher.constraints import ROOT
from tests.launcher.images import instructions

RELEASE = "bookworm"
PACKAGES = "python3,python3-pip,ca-certificates"
HOST_FILES = ("etc/resolv.conf", "etc/hosts", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""What an engine would give a build, and pip's settings of this machine."""


def main(root: Path) -> None:
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root)], check=True)
    for name in HOST_FILES:
        if (Path("/") / name).is_file():
            shutil.copy(Path("/") / name, root / name)
    # Debian's mark that pip is not to install into its Python, which the base image lacks; and its names of both.
    for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
    try:
        build(root)
    finally:
        subprocess.run(["umount", str(root / "proc")], check=True)
    print("every step ran")


def build(root: Path) -> None:
    """Carry the steps out in a root that is made."""
    shell, folder, user = ["/bin/sh", "-c"], "/", "0"
    variables = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    variables |= {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
    steps = instructions((ROOT / "deploy/Dockerfile").read_text())
    for word, rest in [
        *steps,
        (
            "RUN",
            "raychains --help > /dev/null && ray --version && python /opt/raychains/jobs/run.py --help > /dev/null",
        ),
    ]:
        print(f"{word} {rest}", flush=True)
        match word:
            case "SHELL":
                shell = json.loads(rest)
            case "WORKDIR":
                folder = rest
                (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                user = rest
            case "ENV":
                variables |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "COPY":
                *sources, target = shlex.split(rest)
                for source in sources:
                    place = root / folder.lstrip("/") / target
                    if (ROOT / source).is_dir():
                        shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
                    else:
                        shutil.copy(ROOT / source, place)
            case "RUN":
                inside = f"cd {shlex.quote(folder)} && {rest}"
                subprocess.run(["chroot", f"--userspec={user}", str(root), *shell, inside], env=variables, check=True)
            case "FROM":
                pass
            case _:
                raise ValueError(f"{word} is no step that this knows")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
