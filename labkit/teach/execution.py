"""Runs a notebook in a fresh kernel and keeps of its outputs what another machine may see."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
CELL_SECONDS = 60

KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
LANGUAGE = {
    "name": "python",
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
}
"""Without the version of Python, which would differ from machine to machine."""


def execute(nb: NotebookNode, folder: Path) -> NotebookNode:
    """Run every cell in a fresh kernel, with an empty learner's folder; tidied afterwards."""
    with tempfile.TemporaryDirectory(prefix="labkit-home-") as home:
        own = {"LABKIT_HOME": home, "PYTHONHASHSEED": "0", "MPLBACKEND": "agg"}
        client = NotebookClient(
            nb,
            timeout=CELL_SECONDS,
            kernel_name=KERNEL["name"],
            resources={"metadata": {"path": str(folder)}},
            record_timing=False,
        )
        client.execute(env={**os.environ, **own})
    return tidy(nb)


def tidy(nb: NotebookNode) -> NotebookNode:
    """Take out what only a running kernel could use, and what differs from machine to machine."""
    nb.metadata = nbformat.from_dict(
        {**{key: nb.metadata[key] for key in ("labkit",) if key in nb.metadata},
         "kernelspec": KERNEL, "language_info": LANGUAGE}
    )  # fmt: skip
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(WIDGET_VIEW, None)
            output.pop("transient", None)
        if "outputs" in cell:
            cell.outputs = list(_joined(cell.outputs))
    return nb


def _joined(outputs: list[NotebookNode]) -> Iterator[NotebookNode]:
    """Neighbouring pieces of one stream as one: where they break depends on timing."""
    held: NotebookNode | None = None
    for output in outputs:
        if held is not None and output.output_type == "stream" and output.name == held.name:
            held.text += output.text
            continue
        if held is not None:
            yield held
        held = output if output.output_type == "stream" else None
        if held is None:
            yield output
    if held is not None:
        yield held
