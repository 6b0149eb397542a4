"""The adapters against the programs of this repository.

The frameworks cannot be installed where these tests run. Those that are missing are replaced by stand-ins, which have the
names and signatures that the adapters use, and nothing else; `__version__` says of which version.
"""

import ast
import importlib
import io
import os
import sys
import tarfile
import tempfile
import types
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
        for more, why in (({"cwd": "/no/such"}, "no such file"), ({"cwd": "/etc/passwd"}, "not a directory"), ({"env": {"A": "x" * 200_000}}, "too long")):
            result = self.loop.run(self.env.exec(["true"], **more))
            self.assertFalse(result.success)
            self.assertIn(why, result.stderr)
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
        for call in (self.kind.task_init("task", "compose.yaml"), self.kind.sample_init("task", "compose.yaml", {})):
            with self.assertRaises(ValueError):
                self.loop.run(call)
        # The gateway has the policy, and says that processes of this machine cannot keep one.
        config = self.adapter.ActiondConfig(network={"mode": "allowlist", "allow": ["example.org"]})
        with self.assertRaisesRegex(actiond.Refused, "cannot honour a network policy"):
            self.loop.run(self.kind.sample_init("task", config, {}))
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
        self.assertEqual((sorted(result.output.split()), result.exit_code, result.truncated), (["err", "out"], 3, False))
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
        for data in ("a\r\nb\rc", "a\nb\nc\n", "a\r\rc\r", "\n\n\n"):
            self.sandbox.write(path, data)
            lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:3]
            for offset, limit in ((0, 3), (0, 1), (1, 1), (2, 5)):
                page = self.backend.read(path, offset, limit)
                self.assertEqual((page.file_data["content"], page.total_lines), ("\n".join(lines[offset:offset + limit]), 3), (data, offset))
        self.sandbox.write(path, "one\none\nlast")
        self.assertIn("exceeds", self.backend.read(path, 3).error)
        self.assertIn("not_found", self.backend.read(f"{self.dir}/none").error)
        self.assertIn("not_a_file", self.backend.read(self.dir).error)

    def test_a_page_of_a_large_file(self):
        self.sandbox.exec("yes abcdefghi | head -c 110000000 >big; printf last >>big")
        page = self.backend.read(f"{self.dir}/big", 0, 3)
        self.assertEqual((page.file_data["content"], page.total_lines, page.next_offset), ("abcdefghi\nabcdefghi\nabcdefghi", 11_000_001, 3))
        page = self.backend.read(f"{self.dir}/big", 10_999_999)
        self.assertEqual((page.file_data["content"], page.next_offset), ("abcdefghi\nlast", None))
        self.sandbox.exec("head -c 2000000 /dev/zero | tr '\\0' x >long")
        page = self.backend.read(f"{self.dir}/long")
        self.assertTrue(len(page.file_data["content"]) < 520_000 and "truncated" in page.file_data["content"])
        self.sandbox.exec("head -c 2000000 /dev/urandom >random")
        self.assertIn("Binary", self.backend.read(f"{self.dir}/random").error)

    def test_ls_and_delete(self):
        self.backend.write(f"{self.dir}/d/file", "data")
        self.assertEqual([(e["path"], e["is_dir"]) for e in self.backend.ls(self.dir).entries], [(f"{self.dir}/d", True)])
        self.assertEqual([(e["path"], e["size"]) for e in self.backend.ls(f"{self.dir}/d/").entries], [(f"{self.dir}/d/file", 4)])
        self.assertIn("path_not_found", self.backend.ls(f"{self.dir}/none").error)
        self.assertIn("not_a_directory", self.backend.ls(f"{self.dir}/d/file").error)
        self.assertIsNone(self.backend.delete(f"{self.dir}/d").error)
        self.assertIn("not found", self.backend.delete(f"{self.dir}/d").error)

    def test_uploads_and_downloads(self):
        paths = [f"{self.dir}/a", "relative", self.dir]
        self.assertEqual([r.error for r in self.backend.upload_files([(p, b"\xff") for p in paths])], [None, "invalid_path", "is_directory"])
        self.assertEqual([(r.content, r.error) for r in self.backend.download_files([*paths, f"{self.dir}/none"])],
                         [(b"\xff", None), (None, "invalid_path"), (None, "is_directory"), (None, "file_not_found")])


class Harbor(Adapter):
    def setUp(self):
        super().setUp()
        adapter = importlib.import_module("actiond.adapters.harbor")
        self.models = importlib.import_module("harbor.models.task.config")
        self.mode = self.models.NetworkMode
        self.kind = adapter.ActiondEnvironment
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.created = []
        whole = actiond.AsyncClient.create

        async def create(client, image, user="", network="", **more):
            """Processes of this machine have no image, no user and no policy."""
            self.created.append((image, user, more["working_dir"], network))
            return await whole(client, **{**more, "working_dir": ""})

        for patch in (unittest.mock.patch.object(actiond.AsyncClient, "create", create),
                      unittest.mock.patch.object(adapter, "DIRECTORIES", [os.path.join(self.directory, "logs")])):
            patch.start()
            self.addCleanup(patch.stop)

    def environment(self, network_policy=None, **more):
        config = types.SimpleNamespace(**{"docker_image": "an-image", "workdir": None, "cpus": None, "memory_mb": None, **more})
        return self.kind(environment_dir=self.directory, environment_name="task", session_id="task__1", trial_paths=None,
                         task_env_config=config, persistent_env={"WORD": "here"}, network_policy=network_policy,
                         mounts=[{"target": os.path.join(self.directory, "artifacts")}, {"target": "/read/only", "read_only": True}])

    def test_what_is_refused(self):
        with self.assertRaisesRegex(ValueError, "docker_image"):
            self.environment(docker_image=None)
        with open(os.path.join(self.directory, "docker-compose.yaml"), "w"):
            pass
        with self.assertRaisesRegex(ValueError, "compose"):
            self.environment()

    def test_network_policies(self):
        listed = self.models.NetworkPolicy(network_mode=self.mode.ALLOWLIST, allowed_hosts=["a.example"])
        public, none = self.models.NetworkPolicy(), self.models.NetworkPolicy(network_mode=self.mode.NO_NETWORK)
        plain = self.environment()
        self.loop.run(plain.start(False))
        self.loop.run(plain.set_network_policy(public))
        with self.assertRaisesRegex(ValueError, "cannot change"):
            self.loop.run(plain.set_network_policy(listed))
        self.loop.run(plain.stop(True))
        self.assertEqual(self.created.pop()[3], "")
        sent = []

        async def changed(client, id, policy):
            sent.append((id, policy))

        for policy, first in ((none, {"mode": "no-network", "allow": []}), (listed, {"mode": "allowlist", "allow": ["a.example"]})):
            environment = self.environment(network_policy=policy)
            self.loop.run(environment.start(False))
            self.assertEqual(self.created.pop()[3], first)
            id = environment.sandbox.id
            with self.assertRaisesRegex(actiond.Refused, "cannot keep network policies"):
                self.loop.run(environment.set_network_policy(public))
            with unittest.mock.patch.object(actiond.AsyncClient, "set_network", changed):
                self.loop.run(environment.set_network_policy(public))
                self.loop.run(environment.set_network_policy(policy))
            self.loop.run(environment.stop(True))
            self.assertEqual(sent, [(id, {"mode": "public", "allow": []}), (id, first)])
            sent.clear()
        self.assertEqual(self.sandboxes(), 0)

    def test_whose_commands_and_where(self):
        with open(os.path.join(self.directory, "Dockerfile"), "w") as file:
            file.write("FROM x\nWORKDIR /app\n")
        for more, flags, want in (({}, "", ("an-image", "root", "/app", "")), ({"workdir": "/srv"}, "--allow-root", ("an-image", "root", "/srv", "")),
                                  ({}, "--user app", ("an-image", "", "/app", ""))):
            environment = self.environment(**more)
            with unittest.mock.patch.dict(os.environ, {"ACTIOND_SERVE_FLAGS": flags}):
                self.loop.run(environment.start(False))
            self.loop.run(environment.stop(True))
            self.assertEqual((self.created.pop(), environment.uploaded), (want, True))

    def test_a_trial(self):
        environment = self.environment()
        with self.assertRaisesRegex(RuntimeError, "not started"):
            self.loop.run(environment.exec("true"))
        self.loop.run(environment.start(False))
        for name in ("logs", "artifacts"):
            self.assertEqual(os.stat(os.path.join(self.directory, name)).st_mode & 0o777, 0o777)
        result = self.loop.run(environment.exec("echo $WORD; pwd; exit 3", cwd="/"))
        self.assertEqual((result.stdout, result.return_code), ("here\n/\n", 3))
        with self.assertRaises(TimeoutError):
            self.loop.run(environment.exec("echo began >>began; sleep 1000", timeout_sec=1))
        self.loop.run(environment.download_file("began", os.path.join(self.directory, "began")))
        with open(os.path.join(self.directory, "began")) as file:
            self.once(lambda name: file.read())
        self.loop.run(environment.upload_file(os.path.join(self.directory, "began"), "again"))
        self.assertEqual(self.loop.run(environment.exec("cat again")).stdout, "began\n")
        self.loop.run(environment.upload_dir(self.directory, "tree"))
        self.loop.run(environment.download_dir("tree", os.path.join(self.directory, "back")))
        with open(os.path.join(self.directory, "back", "began")) as file:
            self.assertEqual(file.read(), "began\n")
        self.loop.run(environment.stop(True))
        self.assertEqual(self.sandboxes(), 0)
        self.loop.run(environment.stop(True))


class OpenAIAgents(Adapter):
    def setUp(self):
        super().setUp()
        self.adapter = importlib.import_module("actiond.adapters.openai_agents")
        self.errors = importlib.import_module("agents.sandbox.errors")
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = os.path.join(directory.name, "workspace")
        self.manifest = importlib.import_module("agents.sandbox.manifest").Manifest(self.root)
        self.clients = self.adapter.ActiondSandboxClient()

    def create(self, **options):
        return self.loop.run(self.clients.create(manifest=self.manifest, options=self.adapter.ActiondOptions(**options)))

    def test_a_policy_is_the_gateways(self):
        with self.assertRaisesRegex(actiond.Refused, "cannot honour a network policy"):
            self.create(network={"mode": "allowlist", "allow": ["example.org"]})
        self.assertEqual(self.sandboxes(), 0)

    def test_a_session(self):
        wrapped = self.create(env={"WORD": "here"})
        session = wrapped._inner
        self.assertFalse(self.loop.run(session.running()))
        self.loop.run(session.start())
        self.assertTrue(self.loop.run(session.running()))
        result = self.loop.run(session.exec("echo $WORD $FROM_MANIFEST; pwd; echo err >&2; exit 3"))
        self.assertEqual((result.stdout.decode(), result.stderr, result.exit_code), (f"here here\n{self.root}\n", b"err\n", 3))
        with self.assertRaises(self.errors.ExecTransportError):
            self.loop.run(session.exec("true", user="no-such-user"))
        self.loop.run(session.write("deep/file", io.BytesIO(b"\xff")))
        self.assertEqual(self.loop.run(session.read("deep/file")).read(), b"\xff")
        with self.assertRaises(self.errors.WorkspaceReadNotFoundError):
            self.loop.run(session.read("none"))
        with self.assertRaises(self.errors.ExecTimeoutError):
            self.loop.run(session.exec("echo began >>began; sleep 1000", timeout=1))
        self.once(lambda name: self.loop.run(session.read(name)).read().decode())
        again = self.loop.run(self.clients.resume(session.state))._inner
        self.assertEqual((again.sandbox.id, again.preserved), (session.sandbox.id, True))
        self.loop.run(self.clients.delete(wrapped))
        self.assertEqual(self.sandboxes(), 0)
        other = self.loop.run(self.clients.resume(session.state))._inner
        self.assertEqual((other.preserved, other.state.workspace_root_ready, self.sandboxes()), (False, False, 1))

    def test_the_workspace_as_an_archive(self):
        session = self.create()._inner
        self.loop.run(session.start())
        self.loop.run(session.write("deep/file", io.BytesIO(b"data")))
        names = ["größe.txt", "n" * 60 + "/" + "m" * 60, "plain"]
        for name in names:
            self.loop.run(session.write(name, io.BytesIO(b"data")))
        self.loop.run(session.exec("ln deep/file other; ln -s größe.txt länk"))
        self.loop.run(session.write("skipped/file", io.BytesIO(b"data")))
        with self.loop.run(session.persist_workspace()) as archive, tarfile.open(fileobj=archive) as tar:
            archive.seek(0)
            self.loop.run(session.exec("rm -r *"))
            self.loop.run(session.hydrate_workspace(archive))
            for name in ("deep/file", "länk", *names):
                self.assertEqual(self.loop.run(session.read(name)).read(), b"data")
            data = {os.path.normpath(m.name): tar.extractfile(m).read() for m in tar if not m.isdir()}
        self.assertEqual(data, {name: b"data" for name in ("deep/file", "other", "länk", *names)})


if __name__ == "__main__":
    unittest.main()
