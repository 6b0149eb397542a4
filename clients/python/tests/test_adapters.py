"""The adapters against the programs of this repository, with the frameworks or stand-ins that have their signatures."""

import ast
import importlib
import os
import sys
import tempfile
import unittest
import unittest.mock

from .support import ROOT, Loop, program

import actiond

STANDINS = str(ROOT / "tests" / "standins")


def setUpModule():
    program("server")
    program("runtimectl")
    sys.path.append(STANDINS)
    unittest.addModuleCleanup(sys.path.remove, STANDINS)


class Modules(unittest.TestCase):
    def test_size_and_syntax(self):
        for path in (ROOT / "src" / "actiond" / "adapters").glob("*.py"):
            text = path.read_text(encoding="utf-8")
            ast.parse(text, feature_version=(3, 9))
            self.assertLessEqual(len(text.splitlines()), 200, path.name)


class Adapter(unittest.TestCase):
    """Has a gateway to processes of this machine, in the environment as a user would have it."""

    def setUp(self):
        self.loop = Loop()
        self.addCleanup(self.loop.stop)
        state = tempfile.TemporaryDirectory()
        self.addCleanup(state.cleanup)
        self.gateway = actiond.docker("--on", "local", "--state-dir", state.name)
        self.addCleanup(self.gateway.close)
        environment = {"ACTIOND_URL": f"unix://{self.gateway._pool.address.socket}", "ACTIOND_API_KEY": self.gateway._child.key}
        patch = unittest.mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)

    def sandboxes(self):
        return len(self.gateway.list().sandboxes)

    def once(self, read):
        """Check that the command of a test, which a timeout ended, began once."""
        self.assertEqual(read("began"), "began\n")


class Inspect(Adapter):
    def setUp(self):
        super().setUp()
        self.adapter = importlib.import_module("actiond.adapters.inspect")
        self.util = importlib.import_module("inspect_ai.util")
        self.kind = self.adapter.ActiondSandboxEnvironment
        self.loop.run(self.kind.task_init("task", None))
        self.environments = self.loop.run(self.kind.sample_init("task", None, {}))
        self.env = self.environments["default"]
        self.addCleanup(lambda: self.loop.run(self.leave()))

    async def leave(self):
        await self.kind.sample_cleanup("task", None, self.environments, False)
        await self.kind.task_cleanup("task", None, True)

    def test_exec(self):
        result = self.loop.run(self.env.exec(["sh", "-c", "cat; echo $WORD; echo err >&2; exit 3"], input=b"in\n", env={"WORD": "here"}))
        self.assertEqual((result.success, result.returncode, result.stdout, result.stderr), (False, 3, "in\nhere\n", "err\n"))
        result = self.loop.run(self.env.exec(["sh", "-c", "kill -TERM $$"]))
        self.assertEqual(result.returncode, 143)
        with self.assertRaises(PermissionError):
            self.loop.run(self.env.exec(["/etc/passwd"]))
        self.assertFalse(self.loop.run(self.env.exec(["no-such-program"])).success)

    def test_a_timeout_does_not_run_the_command_twice(self):
        with self.assertRaises(TimeoutError):
            self.loop.run(self.env.exec(["sh", "-c", "echo began >>began; sleep 1000"], timeout=1, timeout_retry=True))
        self.once(lambda name: self.loop.run(self.env.read_file(name)))

    def test_files(self):
        self.loop.run(self.env.write_file("deep/file", "text\r\n"))
        self.assertEqual(self.loop.run(self.env.read_file("deep/file")), "text\r\n")
        self.loop.run(self.env.write_file("bytes", b"\xff"))
        self.assertEqual(self.loop.run(self.env.read_file("bytes", text=False)), b"\xff")
        for error, call in ((UnicodeDecodeError, self.env.read_file("bytes")), (FileNotFoundError, self.env.read_file("none")),
                            (IsADirectoryError, self.env.read_file("deep")), (IsADirectoryError, self.env.write_file("deep", ""))):
            with self.assertRaises(error):
                self.loop.run(call)
        with unittest.mock.patch.object(self.util.SandboxEnvironmentLimits, "MAX_READ_FILE_SIZE", 3):
            with self.assertRaises(self.util.OutputLimitExceededError):
                self.loop.run(self.env.read_file("deep/file"))

    def test_what_is_refused(self):
        before = self.sandboxes()
        for config in (self.adapter.ActiondConfig(network={"allow": ["example.org"]}), "compose.yaml"):
            with self.assertRaises((actiond.ActiondError, ValueError)):
                self.loop.run(self.kind.task_init("task", config))
            with self.assertRaises((actiond.ActiondError, ValueError)) as raised:
                self.loop.run(self.kind.sample_init("task", config, {}))
            if not isinstance(config, str):
                self.assertIn(self.adapter.NO_POLICY, str(raised.exception))
        self.assertEqual(self.sandboxes(), before)

    def test_cleaning_up(self):
        self.assertEqual(self.sandboxes(), 1)
        connection = self.loop.run(self.env.connection())
        self.assertIn(self.env.sandbox.id, connection.command)
        self.loop.run(self.kind.cli_cleanup(None))
        self.assertEqual(self.sandboxes(), 0)
        with self.assertRaises(self.util.SandboxUnavailableError):
            self.loop.run(self.env.exec(["true"]))


class DeepAgents(Adapter):
    def setUp(self):
        super().setUp()
        adapter = importlib.import_module("actiond.adapters.deepagents")
        self.sandbox = self.gateway.create()
        self.backend = adapter.ActiondSandbox(self.sandbox)
        self.dir = self.sandbox.run("pwd").output.strip()

    def test_execute(self):
        result = self.backend.execute("echo out; echo err >&2; exit 3")
        self.assertEqual((result.output.split(), result.exit_code, result.truncated), (["out", "err"], 3, False))
        self.assertEqual(len(self.backend.execute("head -c 100000 /dev/zero | tr '\\0' x").output), 100_000)

    def test_a_timeout_does_not_run_the_command_twice(self):
        result = self.backend.execute("echo began >>began; sleep 1000", timeout=1)
        self.assertEqual(result.exit_code, 124)
        self.once(lambda name: self.sandbox.read(name).decode())

    def test_files(self):
        path = f"{self.dir}/deep/file"
        self.assertEqual(self.backend.write(path, "one\r\ntwo\r\none\r\n").path, path)
        self.assertEqual(self.backend.edit(path, "two\none", "2\n1").occurrences, 1)
        self.assertEqual(self.sandbox.read(path), b"one\r\n2\r\n1\r\n")
        self.assertIn("not found", self.backend.edit(path, "three", "3").error)
        self.backend.write(path, "one\none\nlast")
        self.assertIn("multiple times", self.backend.edit(path, "one", "1").error)
        self.assertEqual(self.backend.edit(path, "one", "1", replace_all=True).occurrences, 2)
        page = self.backend.read(path, 1, 1)
        self.assertEqual((page.file_data["content"], page.total_lines, page.start_line, page.end_line, page.next_offset), ("1", 3, 2, 2, 2))
        self.assertIn("exceeds", self.backend.read(path, 3).error)
        self.assertIn("not_found", self.backend.read(f"{self.dir}/none").error)
        self.assertIn("not_a_file", self.backend.read(self.dir).error)

    def test_uploads_and_downloads(self):
        paths = [f"{self.dir}/a", "relative", self.dir]
        self.assertEqual([r.error for r in self.backend.upload_files([(p, b"\xff") for p in paths])], [None, "invalid_path", "is_directory"])
        self.assertEqual([(r.content, r.error) for r in self.backend.download_files([*paths, f"{self.dir}/none"])],
                         [(b"\xff", None), (None, "invalid_path"), (None, "is_directory"), (None, "file_not_found")])


if __name__ == "__main__":
    unittest.main()
