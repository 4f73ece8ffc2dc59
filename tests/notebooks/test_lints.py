"""Each rule for notebooks catches the notebook that breaks it."""

import pytest
from nbformat import from_dict

from labkit.teach.lints import reading_problems, tidy_problems

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def a_notebook(*cells):
    return from_dict({"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def prose(text):
    return {"cell_type": "markdown", "id": "p", "metadata": {}, "source": text}


def code(text="1", outputs=(), count=1, tags=(), cell_id="c"):
    return {
        "cell_type": "code",
        "id": cell_id,
        "metadata": {"tags": list(tags)} if tags else {},
        "source": text,
        "outputs": list(outputs),
        "execution_count": count,
    }


def stream(text):
    return {"output_type": "stream", "name": "stdout", "text": text}


def shown(alt=None, **data):
    metadata = {"image/png": {"alt": alt}} if alt else {}
    return {"output_type": "display_data", "data": data, "metadata": metadata}


ERROR = {"output_type": "error", "ename": "KeyError", "evalue": "7", "traceback": []}


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (code(count=3), "executed in the order [3], not 1 to 1"),
        (code(count=None), "executed in the order [None], not 1 to 1"),
        (code(outputs=[ERROR]), "cell c raised KeyError: 7"),
        (code(outputs=[shown(**{WIDGET_VIEW: "{}"})]), "cell c keeps a view of a widget"),
        (
            code(outputs=[stream("in /home/ada/lab")]),
            "a path of this machine: '/home/ada/lab'",
        ),
        (code(outputs=[stream(r"in C:\Users\ada")]), "prints a path of this machine"),
        (code(outputs=[stream("<Dock at 0x7f12345678>")]), "prints an address in memory"),
        (code(outputs=[stream("x" * 500_001)]), "over 500,000"),
    ],
)
def test_an_untidy_notebook_is_named(cell, says):
    assert says in "; ".join(tidy_problems(a_notebook(cell)))


def test_a_tidy_notebook_has_no_problem():
    cells = [
        code(outputs=[stream("see https://example.org/tmp/x and 1/tmp")]),
        code(outputs=[ERROR], tags=["raises-exception"], count=2, cell_id="d"),
    ]
    assert tidy_problems(a_notebook(*cells)) == []


TITLE = prose("# A title")


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (prose("# A second title"), "2 headings of the first level"),
        (prose("### Too deep"), "heading 'Too deep' of level 3 follows one of level 1"),
        (prose("![](a.png)"), "an image without alternative text"),
        (prose('<img src="a.png">'), "an image without alternative text"),
        (code(outputs=[shown(**{"image/png": "AA"})]), "a picture without a sentence"),
        (code(outputs=[shown("Figure", **{"image/png": "AA"})]), "a picture without a sentence"),
        (prose("It takes 109.7 ms."), "types 109.7 ms in prose"),
        (prose("It takes 3 s."), "types 3 s in prose"),
        (code("!ls"), "calls a shell or a magic"),
        (code("%%bash\nls"), "calls a shell or a magic"),
        (code("from math import *"), "imports *"),
        (code("import sys\nsys.path.append('x')"), "touches sys.path"),
        (code("\n".join("x = 1" for _ in range(16))), "has 16 lines, over 15"),
    ],
)
def test_a_notebook_that_reads_badly_is_named(cell, says):
    assert says in "; ".join(reading_problems(a_notebook(TITLE, cell)))


@pytest.mark.parametrize(
    "text",
    [
        "Fifty: 50 ms of waiting, 100 ms on the GPU, 500 ms in all.",
        "P95 is 109.7 ms (measured on two cores).",
        "Call `sleep(3 s)`.",
        "```\nP95 109.7 ms\n```",
        "![The dock at noon](dock.png)",
    ],
)
def test_good_prose_passes(text):
    assert reading_problems(a_notebook(TITLE, prose(text))) == []
