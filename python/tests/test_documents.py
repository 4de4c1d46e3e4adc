"""The Python code of the documents runs: all blocks of a page, one after the other, in one namespace."""

import pathlib
import re

import pytest

PAGES = pathlib.Path(__file__).parents[2] / "docs"


def blocks(page):
    """(number of the first line, code) of every block that is marked as Python."""
    text = (PAGES / page).read_text()
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text[: match.start()].count("\n") + 2, match.group(1)


def test_python_page():
    torch_missing = "torch is not installed"
    names = {}
    for line, code in blocks("python.md"):
        if "torch" in code:
            pytest.importorskip("torch", reason=torch_missing)
        exec(compile("\n" * (line - 1) + code, "docs/python.md", "exec"), names)
    assert names["out"].shape == (4, 16, 512) and names["lse"].shape == (4, 16)
    assert names["window"].lengths.tolist() == [16, 16, 16, 16]
    assert names["indptr"].tolist() == [0, 8, 16, 19, 19]
