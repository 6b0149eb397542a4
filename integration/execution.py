"""Decode our answers of POST /api/execution/tools by OpenHands' own classes.

    python3 integration/execution.py SNAPSHOT URL KEY

SNAPSHOT is a checkout of OpenHands/software-agent-sdk, whose classes for the observations of five tools are run as they are. It needs Python 3.11
and pydantic 2. What the classes import and observations do not need is replaced by stubs: the packages in STUBS, and the definitions of tools.
URL is a server whose working directory is empty, and is not needed afterwards. It must leave out members that are null.
"""

import importlib
import json
import logging
import sys
import types
import urllib.error
import urllib.request
from importlib.machinery import ModuleSpec
from typing import Any, Dict, List, Tuple

STUBS = ("rich", "litellm", "openai", "deprecation", "packaging", "httpx")
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # an image of one pixel


class Stub(types.ModuleType):
    """A module in which every name is a class that takes anything."""

    __path__: List[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **named: None, "__class_getitem__": classmethod(lambda cls, _: cls), "name": ""})


class Stubs:
    """Finds the modules that are replaced."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return ModuleSpec(name, self) if name.split(".")[0] in STUBS else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def observations(snapshot: str) -> Dict[str, Any]:
    """Import the classes, without what the packages import for an agent."""
    sys.meta_path.insert(0, Stubs())  # type: ignore[arg-type]
    sdk, tools = snapshot + "/openhands-sdk/openhands/sdk", snapshot + "/openhands-tools/openhands/tools"
    names = ["terminal", "file_editor", "grep", "glob", "apply_patch"]
    paths = {"openhands": "", "openhands.sdk": sdk, "openhands.sdk.llm": sdk + "/llm", "openhands.sdk.tool": sdk + "/tool",
             "openhands.sdk.utils": sdk + "/utils", "openhands.tools": tools}
    for name, path in {**paths, **{f"openhands.tools.{n}": f"{tools}/{n}" for n in names}}.items():
        module = sys.modules[name] = Stub(name)
        module.__path__ = [path]
    sys.modules["openhands.sdk.tool.tool"] = Stub("openhands.sdk.tool.tool")
    logger = sys.modules["openhands.sdk.logger"] = types.ModuleType("openhands.sdk.logger")
    vars(logger)["get_logger"] = logging.getLogger
    for package, module in ("utils", "utils.truncate"), ("llm", "llm.message"), ("tool", "tool.schema"):
        found = vars(importlib.import_module("openhands.sdk." + module))
        vars(sys.modules["openhands.sdk." + package]).update({n: v for n, v in found.items() if not n.startswith("_")})
    vars(sys.modules["openhands.sdk.tool"])["register_tool"] = lambda *_: None
    definitions = {n: importlib.import_module(f"openhands.tools.{n}.definition") for n in names}
    return {n: getattr(m, n.title().replace("_", "") + "Observation") for n, m in definitions.items()}


def post(url: str, key: str, path: str, body: Any) -> Tuple[int, Any]:
    headers = {"X-Session-API-Key": key, "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, json.dumps(body).encode(), headers)) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def main(snapshot: str, url: str, key: str) -> None:
    classes = observations(snapshot)
    _, where = post(url, key, "/api/execution/tools", {"tool_name": "terminal", "action": {"command": "pwd"}})
    d = where["observation"]["metadata"]["working_dir"]
    long, edit = "x" * 70_000, {"path": d + "/a.txt"}
    calls: List[Tuple[str, str, Dict[str, Any], Dict[str, Any]]] = [  # what, tool, action, members of the decoded observation
        ("success", "terminal", {"command": "echo hi"}, {"exit_code": 0, "is_error": False, "timeout": False}),
        ("failure", "terminal", {"command": "exit_with() { return 3; }; exit_with"}, {"exit_code": 3, "is_error": False}),
        ("truncation", "terminal", {"command": "seq 1 200000"}, {"exit_code": 0}),
        ("timeout", "terminal", {"command": "read -r line; echo got $line", "timeout": 0.2}, {"exit_code": -1, "timeout": True}),
        ("refusal", "terminal", {"command": "ls"}, {"is_error": True, "exit_code": -1}),
        ("input", "terminal", {"command": "x", "is_input": True}, {"exit_code": 0}),
        ("key", "terminal", {"command": "C-c", "is_input": True}, {}),
        ("two commands", "terminal", {"command": "ls\nls"}, {"is_error": True}),
        ("reset", "terminal", {"command": "", "reset": True}, {"is_error": False}),
        ("create", "file_editor", {"command": "create", **edit, "file_text": "one\n"}, {"prev_exist": False, "new_content": "one\n"}),
        ("replace", "file_editor", {"command": "str_replace", **edit, "old_str": "one", "new_str": "two"}, {"old_content": "one\n", "new_content": "two\n"}),
        ("insert", "file_editor", {"command": "insert", **edit, "insert_line": 1, "new_str": long}, {"is_error": False}),
        ("truncated view", "file_editor", {"command": "view", **edit}, {"is_error": False}),
        ("undo", "file_editor", {"command": "undo_edit", **edit}, {"new_content": "two\n"}),
        ("error", "file_editor", {"command": "view", "path": d + "/none"}, {"is_error": True}),
        ("image", "file_editor", {"command": "view", "path": d + "/dot.png"}, {"is_error": False}),
        ("matches", "grep", {"pattern": "two", "include": "*.txt"}, {"matches": [d + "/a.txt"], "include_pattern": "*.txt", "truncated": False}),
        ("no match", "grep", {"pattern": "none"}, {"matches": [], "is_error": False}),
        ("error", "grep", {"pattern": "("}, {"is_error": True}),
        ("truncation", "grep", {"pattern": "many"}, {"truncated": True}),
        ("files", "glob", {"pattern": "*.txt", "path": d}, {"files": [d + "/a.txt"], "search_path": d}),
        ("truncation", "glob", {"pattern": "many/*"}, {"truncated": True}),
        ("error", "glob", {"pattern": "*", "path": d + "/none"}, {"is_error": True}),
        ("success", "apply_patch", {"patch": "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+four\n*** End Patch"}, {"is_error": False, "fuzz": 0}),
        ("error", "apply_patch", {"patch": "x"}, {"is_error": True}),
        ("missing argument", "grep", {}, {"is_error": True}),
    ]
    post(url, key, "/api/execution/tools", {"tool_name": "terminal", "action": {"command":
        f"base64 -d >dot.png <<<{DOT}; mkdir many; for n in $(seq 150); do echo many >many/$n; done"}})
    wrong = 0
    for what, tool, action, want in calls:
        status, answer = post(url, key, "/api/execution/tools", {"tool_name": tool, "action": action})
        try:
            kind = answer["observation"]["kind"]
            got = classes[tool].model_validate(answer["observation"])  # it takes the kind out
            bad = {m: getattr(got, m) for m, value in want.items() if getattr(got, m) != value}
            nulls = [m for m, value in answer["observation"].items() if value is None]
            problem = f"is {bad}" if bad else f"has nulls {nulls}" if nulls else "" if kind == type(got).__name__ else f"has the kind {kind}"
            if not got.content or what == "image" and not any(c.type == "image" for c in got.content):
                problem = "has no content"
        except Exception as e:
            problem = f"{status} {json.dumps(answer)[:300]}: {e}"
        wrong += problem != ""
        print(f"{tool}: {what}: {problem or 'ok'}")
    status, _ = post(url, key, "/api/execution/tools", {"tool_name": "task_tracker", "action": {"command": "view"}})
    print(f"{len(calls) - wrong} of {len(calls)} answers decoded; task_tracker: {status}")
    sys.exit(wrong > 0 or status != 422)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
