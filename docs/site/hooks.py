"""Give MkDocs the navigation of docs/README.md, the files outside docs/ that pages link to, and the page of the Python
API.

Files keep their paths in the repository: links that lead somewhere on a forge lead to the same file here, and MkDocs
itself checks them.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import raychains

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
API = "docs/reference/api.md"
PLACES = {"docs/results/index.html": "docs/results/gallery.html"}  # beside the page of README.md, which is index.html

NAMES = {
    "Runs": "fit run compare local sweep evaluate draw_report reproduce load",
    "Options": "Fit Run Compare Local Sweep",
    "Results": "Result SweepResult PosteriorPredictive",
    "Ray Tune, Ray Train, Ray Serve and scikit-learn": "tune train serve sklearn",
    "Tasks": "Task LogDensity PredictiveTask make_task",
    "Samplers": "Sampler ClosureSampler MethodPreset SGLD SGHMC PSGLD SGNHT ATMC MCLMC EntropyMCMC EntropySGD "
    "EntropySGLD SAM BSAM SWAG LastLayerLaplace AdamW SGD SGDM",
    "Schedules": "Schedule ScheduleValues NonCyclical Constant Cyclical Decreasing Exponential Linear Step ScheduleLR",
    "Chains, measures, callbacks, errors": "Chain ChainSpec Measure Metric Callback RaychainsError UserError "
    "Interrupted ChainsFailed RayLost",
}
SHOWN = {"Options": {"members": False}, "Results": {"inherited_members": True}, "Tasks": {"inherited_members": True}}
MODULES = "samplers schedules tasks priors models measures callbacks papers"


def on_config(config: MkDocsConfig) -> None:
    """Take the navigation from the headings, groups and links of docs/README.md."""
    first: list[Any] = [{"raychains": "README.md"}, {"All pages": "docs/README.md"}, {"Changes": "CHANGELOG.md"}]
    nav: list[Any] = [{"Home": first}]
    for section in (Path(config.docs_dir) / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, *lines = section.splitlines()
        entries: list[Any] = [{"Python API": API}] if heading == "Reference" else []
        nav.append({heading: entries})
        group = entries
        for line in lines:
            if line.endswith(":"):
                entries.append({line[:-1]: (group := [])})
            group += [{m[1]: posixpath.normpath(f"docs/{m[2]}")} for m in LINK.finditer(line) if "#" not in m[0]]
    config.nav = nav


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Give the files of docs/ their paths in the repository; add those that pages link to, and the page of the API."""
    root = Path(config.docs_dir).parent
    inside = [file for file in files if file.src_dir == config.docs_dir]
    paths = ["README.md", *(f"docs/{file.src_uri}" for file in inside if file.inclusion.is_included())]
    for file in inside:
        files.remove(file)
    for path in paths:  # which grows
        places = {"dest_uri": PLACES[path]} if path in PLACES else {}
        files.append(File(path, str(root), config.site_dir, config.use_directory_urls, **places))
        if path.endswith(".md"):
            links = [link for _, link in LINK.findall((root / path).read_text(encoding="utf-8"))]
            found = dict.fromkeys(posixpath.normpath(posixpath.join(posixpath.dirname(path), link)) for link in links)
            paths += [p for p in found if p not in paths and not p.startswith("..") and (root / p).is_file()]
    files.append(File.generated(config, API, content=api()))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name a table of results by its folder, and make plain text of links to folders, which only a forge shows."""
    if page.file.name == "table":
        page.meta["title"] = posixpath.basename(posixpath.dirname(page.file.src_uri))
    folder = (Path(config.docs_dir).parent / page.file.src_uri).parent
    return LINK.sub(lambda m: m[1] if (folder / m[2]).is_dir() else m[0], markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Copy the results' tables as they are, too: their pages offer them beside those in TeX and parquet."""
    docs = Path(config.docs_dir)
    for table in docs.glob("results/*/table.md"):
        shutil.copyfile(table, Path(config.site_dir) / "docs" / table.relative_to(docs))


def api() -> str:
    """Return the page of the API: a reference to each public name, which mkdocstrings fills with its docstring."""
    public = set(raychains.__all__)
    if differ := public ^ set(" ".join(NAMES.values()).split()):
        raise PluginError(f"raychains.__all__ and NAMES of docs/site/hooks.py differ in {sorted(differ)}")
    parts = ["# Python API", "`import raychains as rc`"]
    for heading, names in NAMES.items():
        parts += [f"## {heading}", *(entry(name, SHOWN.get(heading, {})) for name in names.split())]
    parts += ["## Modules"]
    for name in MODULES.split():
        exported = getattr(import_module(f"raychains.{name}"), "__all__", [])
        members = [member for member in exported if member not in public] or None  # None: all that are public
        parts += [entry(name, {"members": members})]
    return "\n\n".join(parts)


def entry(name: str, options: dict[str, Any]) -> str:
    return f"::: raychains.{name}\n    options: {json.dumps(options)}"
