"""Drawing of the rooms: it is that of this tree."""

from __future__ import annotations

import ast

from scripts.draw_rooms import PICTURE, draw, imports, reduced
from tests.architecture.package import parsed, sources
from tests.marks import SLOW


@SLOW
def test_the_drawing_of_the_rooms_is_of_this_tree() -> None:
    files = {path: parsed(source) for path, source in sources().items()}
    assert PICTURE.read_text(encoding="utf-8") == draw(files), "Run `python -m scripts.draw_rooms`."


def test_an_import_at_any_depth_is_drawn_unless_others_imply_it() -> None:
    files = {
        "sb_dqn/a/deep/x.py": "def f():\n from sb_dqn import b",
        "sb_dqn/b.py": "import sb_dqn.c.y",
        "sb_dqn/c/y.py": "",
    }
    trees = {path: ast.parse(source) for path, source in files.items()}
    graph = {"a": {"b"}, "b": {"c"}, "c": set[str]()}
    assert imports(trees) == graph
    before = draw(trees)
    trees["sb_dqn/a/z.py"] = ast.parse("from sb_dqn.c.y import name")
    assert imports(trees)["a"] == {"b", "c"}
    assert reduced(imports(trees)) == {"a": ["b"], "b": ["c"], "c": []}
    assert draw(trees) == before
    trees["sb_dqn/d/__init__.py"] = ast.parse("import sb_dqn.a")
    assert draw(trees).count("<path") == before.count("<path") + 1
