"""The package as a whole: what is generated, what it imports, its size and its documentation."""

import ast
import importlib.util
import inspect
import re
import sys
import unittest

from .support import ROOT

import actiond

SOURCES = sorted((ROOT / "src" / "actiond").glob("*.py"))
GENERATED = ("_sync.py", "_http_sync.py")
MOST_LINES = 2045  # of code: without blank lines, comments and docstrings


def code_lines(tree: ast.Module) -> int:
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass(lineno=node.body[0].lineno, end_lineno=node.body[0].lineno)]
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            lines.update((node.lineno, node.end_lineno))
    return len(lines)


class Package(unittest.TestCase):
    def test_generated(self):
        spec = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "generate.py")
        generate = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(generate)
        self.assertEqual(sorted(generate.MODULES.values()), sorted(GENERATED))
        for source, target in generate.MODULES.items():
            text = (generate.SOURCE / target).read_text(encoding="utf-8")
            self.assertEqual(text, generate.generated(source), f"{target} is stale: run tools/generate.py")
            code = text.split("\n", 1)[1]  # the first line names the source
            self.assertIsNone(re.search(r"\bawait\b|\basync (def|for|with)\b|\basyncio\b|_async\b", code), target)

    def test_imports(self):
        known = getattr(sys, "stdlib_module_names", None)
        for path in SOURCES:
            tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
            for node in ast.walk(tree):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and not node.level:
                    names = [node.module]
                for name in names:
                    top = name.split(".")[0]
                    found = top in known if known else "site-packages" not in (importlib.util.find_spec(top).origin or "")
                    self.assertTrue(found, f"{path.name} imports {name}, which is not in the standard library")

    def test_size(self):
        lines = {p.name: code_lines(ast.parse(p.read_text(encoding="utf-8"))) for p in SOURCES if p.name not in GENERATED}
        self.assertLessEqual(sum(lines.values()), MOST_LINES, lines)

    def test_documentation(self):
        for name in actiond.__all__:
            value = getattr(actiond, name)
            self.assertTrue(inspect.getdoc(value), name)
            for member, function in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)) and member != "of":
                    self.assertTrue(inspect.getdoc(function), f"{name}.{member}")

    def test_both_clients_have_the_same_methods(self):
        for plain, other in ((actiond.Sandbox, actiond.AsyncSandbox), (actiond.Client, actiond.AsyncClient)):
            public = [{n: list(inspect.signature(f).parameters) for n, f in inspect.getmembers(kind, inspect.isfunction) if n[0] != "_"}
                      for kind in (plain, other)]
            self.assertEqual(*public)


if __name__ == "__main__":
    unittest.main()
