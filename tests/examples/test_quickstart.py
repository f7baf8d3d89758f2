"""The quick-start notebook in a real kernel: a live view, then its result, its figures and its predictions in its
outputs."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import raychains as rc
from tests.processes import SECONDS

SHOW = "result.show()"
"""A cell that is not in the notebook."""
NOTEBOOK = Path(rc.__file__).parents[1] / "examples" / "quickstart.ipynb"


class Client(NotebookClient):
    """Keeps all that is displayed, also what a later message takes away."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.displayed: list[dict[str, Any]] = []

    def process_message(self, message: Any, cell: Any, index: int) -> Any:
        if message["msg_type"] in ("display_data", "update_display_data"):
            self.displayed.append({**message["content"], "cell": index})
        return super().process_message(message, cell, index)


Executed = tuple[list[Any], Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    """The code cells with their outputs, the folder that they ran in, and what the cell with the run displayed."""
    folder = tmp_path_factory.mktemp("quickstart")
    paths = [str(NOTEBOOK.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    outside = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "MPLBACKEND")}
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    after = next(i for i, cell in enumerate(notebook.cells) if cell.source == "result.table()")
    notebook.cells.insert(after + 1, nbformat.v4.new_code_cell(SHOW))
    client = Client(notebook, kernel_name="python3", timeout=SECONDS, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**outside, "PYTHONPATH": os.pathsep.join(paths), "IPYTHONDIR": str(folder / "ipython")})
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return cells, folder, [d for d in client.displayed if "rc.run" in notebook.cells[d["cell"]].source]


def data_of(cell: Any) -> dict[str, str]:
    """A cell's rich outputs by MIME type."""
    return {kind: text for output in cell.outputs for kind, text in output.get("data", {}).items()}


def printed(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def test_it_is_stored_without_outputs_and_its_first_result_takes_15_lines() -> None:
    cells = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    first = next(cell.source for cell in cells if "rc.run" in cell.source)
    assert first.splitlines()[-1] == "result" and len(list(filter(str.strip, first.splitlines()))) <= 15


@pytest.mark.long
def test_a_live_view_is_drawn_in_one_place_and_is_gone_after_the_run(executed: Executed) -> None:
    *_, displayed = executed
    views = [content for content in displayed if content.get("transient", {}).get("display_id")]
    drawn = [content["data"]["text/html"] for content in views]
    assert any(re.search(r"\w, chain [12]", html) for html in drawn), drawn
    assert len({content["transient"]["display_id"] for content in views}) == 1, "it is updated"
    assert drawn[-1] == "", "the view is removed"


@pytest.mark.long
def test_the_result_is_shown_with_its_table_and_figures(executed: Executed) -> None:
    cells, folder, _ = executed
    result = rc.load(str(folder / "runs" / "runs" / "quickstart"))
    shown = data_of(next(cell for cell in cells if "rc.run" in cell.source))
    table = result.table()
    assert all(text in shown["text/html"] for text in table.iloc[0])
    assert shown["text/html"].count("data:image/svg+xml;base64,") == 2 and "<script" not in shown["text/html"]
    assert 'href="runs/runs/quickstart/report.html"' in shown["text/html"]
    assert shown["text/plain"].startswith("Result 'quickstart': task images\n")
    frame = data_of(next(cell for cell in cells if cell.source == "result.table()"))
    assert table.iloc[0, 0] in frame["text/html"]
    assert result.table(full=True)["error"].iloc[0] < 0.8  # always the same class: 0.9


@pytest.mark.long
def test_figures_are_in_the_outputs(executed: Executed) -> None:
    cells, *_ = executed
    reliability = next(cell for cell in cells if 'result.figures["reliability"]' in cell.source)
    svg = data_of(reliability)["image/svg+xml"]
    assert "<svg" in svg and "prefers-color-scheme: dark" in svg and "'reliability'" in printed(reliability)
    forest = next(cell for cell in cells if "plot_forest" in cell.source)
    assert "image/png" in data_of(forest)
    draws = printed(next(cell for cell in cells if "to_arviz" in cell.source))
    assert all(group in draws for group in ("posterior", "posterior_predictive", "log_likelihood"))


@pytest.mark.long
def test_show_displays_the_table_and_all_figures(executed: Executed) -> None:
    cells, *_ = executed
    names = ast.literal_eval(printed(next(cell for cell in cells if "list(result.figures)" in cell.source)).strip())
    shown = next(cell for cell in cells if cell.source == SHOW)
    (html,) = [o.data["text/html"] for o in shown.outputs if o.output_type == "display_data"]
    assert html.count("data:image/svg+xml;base64,") == len(names) > 2 and "<table" in html


@pytest.mark.long
def test_predictions_are_probabilities(executed: Executed) -> None:
    cells, *_ = executed
    last = cells[-1]
    p = np.array([float(n) for n in re.findall(r"\d\.\d*", data_of(last)["text/plain"])]).reshape(3, 10)
    assert (p >= 0).all() and np.allclose(p.sum(1), 1, atol=0.01)
    samples, accuracy = re.match(r"(\d+) samples; accuracy ([\d.]+)", printed(last)).groups()
    assert int(samples) >= 2 and float(accuracy) > 0.2
