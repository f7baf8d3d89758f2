"""The site of `make docs`: it has every page, whole; its links lead somewhere; it asks no other host; a broken link
fails its build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

import raychains

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "docs" / "site" / "mkdocs.yml"
PAGES = ["README.md", "CHANGELOG.md", "benchmarks/README.md", "deploy/clusters/aws-roles.md"]
PAGES += sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))
ELEMENTS = (
    "h1",
    "h2",
    "h3",
    "h4",
    "p",
    "ul",
    "ol",
    "li",
    "blockquote",
    "table",
    "tr",
    "td",
    "pre",
    "code",
    "strong",
    "em",
    "img",
)


class Page(HTMLParser):
    """The addresses, the anchors and the text of one page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        """What a browser fetches without being asked."""
        self.anchors: set[str] = set()
        self.words: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))
        self.text = re.sub(r"\s+", " ", "".join(self.words))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attributes if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.links += [found["href"]] if tag in ("a", "link") and "href" in found else []
        self.loaded += [found["src"]] if "src" in found else []
        if tag == "link" and not {"prev", "next", "canonical"} & set(found.get("rel", "").split()):
            self.loaded += [found["href"]]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(CONFIG), "-d", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {page: Page(page) for page in site.rglob("*.html")}


def built(site: Path, page: str) -> Path:
    """The file that a Markdown page is written to."""
    return (site / re.sub(r"README\.md$", "index.md", page)).with_suffix(".html")


def counts(html: str) -> dict[str, int]:
    return {element: len(re.findall(rf"<{element}[\s>/]", html)) for element in ELEMENTS}


@pytest.mark.long
def test_every_page_is_there_and_is_read_as_a_forge_reads_it(site: Path) -> None:
    forge = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for page in PAGES:
        article = re.search(r"<article.*</article>", built(site, page).read_text(encoding="utf-8"), re.S)
        assert article, page
        expected, found = counts(forge.render((ROOT / page).read_text(encoding="utf-8"))), counts(article[0])
        expected["h1"] = 1  # tables of results have none, and are given one
        assert found == expected, page


@pytest.mark.long
def test_links_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert site / "docs" / "results" / "gallery.html" in pages
    checked = 0
    for path, page in pages.items():
        for link in {*page.links, *page.loaded}:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            name = unquote(parts.path)
            target = site / name.lstrip("/") if name.startswith("/") else path.parent / name if name else path
            target = target.resolve() / "index.html" if target.is_dir() else target.resolve()
            assert target.is_file(), (path, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].anchors, (path, link)
            checked += 1
    assert checked > 1000


@pytest.mark.long
def test_no_page_asks_another_host(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert [address for address in page.loaded if urlsplit(address).netloc] == [], path


@pytest.mark.long
def test_the_navigation_is_that_of_the_index(site: Path, pages: dict[Path, Page]) -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    home = pages[site / "index.html"]
    listed = [link for link in re.findall(r"\]\(([\w./-]+\.md)\)", index)]
    expected = [str(built(site, os.path.normpath(f"docs/{link}")).relative_to(site)) for link in listed]
    found = [link for link in dict.fromkeys(home.links) if link in expected]
    assert sorted(found) == sorted(expected)
    for heading in re.findall(r"^## (.+)$", index, re.M):
        assert heading in home.text


@pytest.mark.long
def test_the_page_of_the_api_has_every_name_and_the_keywords_of_run(site: Path, pages: dict[Path, Page]) -> None:
    page = pages[site / "docs" / "reference" / "api.html"]
    assert {f"raychains.{name}" for name in raychains.__all__} <= page.anchors
    for text in (
        "exploration: float | str | Mapping [ Any , Any ] | None = None".replace(" ", ""),
        "β in [0, 1): share of each cycle spent without noise.".replace(" ", ""),
    ):
        assert text in page.text.replace(" ", "")


# A small tree in place of the repository


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "how-to").mkdir(parents=True)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "own.py").write_text("pass\n")
    (tmp_path / "README.md").write_text("# Tree\n\n[pages](docs/README.md), [changes](CHANGELOG.md)\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n")
    (tmp_path / "docs" / "README.md").write_text("# Pages\n\n## Reference\n\n- [Run](how-to/run.md)\n")
    write(tmp_path, "[home](../../README.md#tree), [a file](../../examples/own.py) in [a folder](../../examples)")
    return tmp_path


def write(tree: Path, text: str) -> None:
    (tree / "docs" / "how-to" / "run.md").write_text(f"# Run\n\n{text}\n")


def build_of(tree: Path) -> Path:
    """Build the tree's site with the settings and hooks of ours, without the docstrings; return its folder."""
    config = load_config(
        str(CONFIG), docs_dir=str(tree / "docs"), site_dir=str(tree / "site"), plugins=["search"], strict=True
    )
    build(config)
    return tree / "site"


def test_files_outside_docs_are_in_the_site_and_folders_are_text(tree: Path) -> None:
    site = build_of(tree)
    page = Page(site / "docs" / "how-to" / "run.html")
    assert {"../../index.html#tree", "../../examples/own.py"} <= set(page.links)
    assert "a file in a folder" in page.text and "../../examples" not in page.links
    assert (site / "examples" / "own.py").read_text() == "pass\n"


def test_every_broken_link_and_a_page_that_the_index_does_not_list_are_warnings_and_fail_the_build(
    tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    links = (
        "nowhere.md",
        "../../examples/nowhere.py",
        "../../../outside.py",
        "../../README.md#nowhere",
        "#nowhere",
        "/README.md",
    )
    write(tree, " ".join(f"[broken]({link})" for link in links))
    (tree.parent / "outside.py").touch()
    (tree / "docs" / "how-to" / "other.md").write_text("# Other\n")
    with pytest.raises(Abort, match=f"with {len(links) + 1} warnings"):
        build_of(tree)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    of_links = [text for text in warnings if "'docs/how-to/run.md' contains a" in text]
    assert [sum(f"link '{link}'" in text for text in of_links) for link in links] == [1] * len(links)
    assert len(of_links) == len(links) and any("docs/how-to/other.md" in text for text in warnings)


def test_one_broken_link_fails_the_build(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tree, "[broken](nowhere.md)")
    with pytest.raises(Abort, match="with 1 warnings"):
        build_of(tree)
    assert "'nowhere.md'" in caplog.text
