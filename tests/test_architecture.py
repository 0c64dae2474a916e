"""The laws of the tree: who may import whom and when, and how large a file may be."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAGES = ("dataset_builder", "trainer", "quant", "eval")
HEAVY = {"torch", "transformers", "peft", "trl", "datasets", "unsloth", "mcp"}
HEAVY |= {"llmcompressor", "compressed_tensors", "inspect_ai", "scipy"}
LAB_MODULES = "batches finetune lora memory model pretrain qlora score".split()
TENSOR_CODE = (
    "trainer/tiny/",
    "trainer/learning/loop.py",
    "trainer/learning/packing.py",
    "core/gated_delta.py",
    *(f"trainer/minigpt/{n}.py" for n in LAB_MODULES),
)
"""What is written in torch, and imported only where torch is loaded anyway."""
MOST_LINES = 400

Check = Callable[[str, str], list[str]]
"""(path relative to the root, source) -> what breaks a law there."""


def imported(nodes: Iterator[ast.AST]) -> set[str]:
    """Top-level packages that these statements import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported: no function bodies, nothing for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from (n for other in child.orelse for n in (other, *at_import(other)))
            continue
        yield child
        yield from at_import(child)


def imports_of_other_stages(path: str, source: str) -> list[str]:
    own = path.split("/")[0]
    if own not in (*STAGES, "core"):
        return []
    others = set(STAGES) - {own}
    return sorted(imported(ast.walk(ast.parse(source))) & others)


def heavy_imports(path: str, source: str) -> list[str]:
    heavy = HEAVY - {"torch", "transformers", "trl"} if path.startswith(TENSOR_CODE) else HEAVY
    if path.split("/")[0] not in (*STAGES, "core"):
        return []
    return sorted(imported(at_import(ast.parse(source))) & heavy)


def third_party_in_core(path: str, source: str) -> list[str]:
    if not path.startswith("core/"):
        return []
    allowed = {"core", "torch"} if path.startswith(TENSOR_CODE) else {"core"}
    return sorted(imported(at_import(ast.parse(source))) - sys.stdlib_module_names - allowed)


def missing_docstring(path: str, source: str) -> list[str]:
    return [] if ast.get_docstring(ast.parse(source)) else ["no docstring"]


def too_long(path: str, source: str) -> list[str]:
    lines = len(source.splitlines())
    return [f"{lines} lines"] if lines > MOST_LINES else []


LAWS: list[Check] = [
    imports_of_other_stages,
    heavy_imports,
    third_party_in_core,
    missing_docstring,
    too_long,
]


def modules() -> list[Path]:
    folders = (*STAGES, "core", "benchmarks", "tests")
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("law", LAWS)
def test_every_module_keeps_the_law(law: Check) -> None:
    assert len(modules()) > 20
    names = {path: path.relative_to(ROOT).as_posix() for path in modules()}
    broken = {name: law(name, path.read_text(encoding="utf-8")) for path, name in names.items()}
    assert {name: why for name, why in broken.items() if why} == {}


def test_importing_the_stages_loads_nothing_heavy() -> None:
    folders = (*STAGES, "core")
    names = [path.relative_to(ROOT).as_posix() for path in modules()]
    light = [n.removesuffix(".py") for n in names if n.startswith(folders) and not n.startswith(TENSOR_CODE)]
    code = "import importlib, sys; [importlib.import_module(n) for n in sys.argv[1:]]\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "print(*sys.modules)", *(n.replace("/", ".") for n in light)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & HEAVY == set()


@pytest.mark.parametrize(
    ("law", "path", "source", "broken"),
    [
        (imports_of_other_stages, "quant/a.py", "def f():\n    import trainer.train", ["trainer"]),
        (imports_of_other_stages, "eval/a.py", "from quant import merge", ["quant"]),
        (imports_of_other_stages, "core/a.py", "from eval.suite import x", ["eval"]),
        (imports_of_other_stages, "quant/a.py", "from quant import lora\nimport core", []),
        (imports_of_other_stages, "tests/a.py", "from quant import lora", []),
        (heavy_imports, "core/a.py", "import torch.nn as nn", ["torch"]),
        (heavy_imports, "eval/a.py", "try:\n    from trl import x\nexcept E:\n    x = 1", ["trl"]),
        (heavy_imports, "eval/a.py", "class A:\n    import mcp", ["mcp"]),
        (
            heavy_imports,
            "eval/a.py",
            "if T:\n    import peft\nelse:\n    import trl",
            ["peft", "trl"],
        ),
        (heavy_imports, "eval/a.py", "def f():\n    import torch", []),
        (heavy_imports, "eval/a.py", "class A:\n    def f(self):\n        import torch", []),
        (heavy_imports, "eval/a.py", "if TYPE_CHECKING:\n    import torch", []),
        (heavy_imports, "eval/a.py", "if TYPE_CHECKING:\n    0\nelse:\n    import trl", ["trl"]),
        (heavy_imports, "trainer/tiny/a.py", "import torch", []),
        (heavy_imports, "trainer/tiny/a.py", "import peft", ["peft"]),
        (heavy_imports, "core/gated_delta.py", "import torch", []),
        (heavy_imports, "trainer/a.py", "import torch", ["torch"]),
        (
            third_party_in_core,
            "core/a.py",
            "import json\nfrom core import x\nimport yaml",
            ["yaml"],
        ),
        (third_party_in_core, "core/a.py", "def f():\n    import yaml", []),
        (missing_docstring, "core/a.py", "x = 1", ["no docstring"]),
        (missing_docstring, "core/a.py", "", ["no docstring"]),
        (missing_docstring, "core/a.py", '"""Says what."""', []),
        (too_long, "core/a.py", "x\n" * 401, ["401 lines"]),
        (too_long, "core/a.py", "x\n" * 400, []),
    ],
)
def test_a_breach_of_each_law_is_seen(law: Check, path: str, source: str, broken: list[str]) -> None:
    assert law(path, source) == broken
