"""The client against the server of this repository: on a port with a key, and on a Unix socket that local() makes."""

import array
import asyncio
import hashlib
import io
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

from .support import ROOT, Both, Loop, Server, both, ended, eventually, program

import actiond
from actiond._launch import _beside_runtimectl, _listens


def setUpModule():
    global server
    server = Server()
    unittest.addModuleCleanup(server.stop)


class Sandboxes(Both):
    """Has a sandbox, and a directory in it of the test alone."""

    def setUp(self):
        super().setUp()
        self.dir = tempfile.mkdtemp(dir=server.work)
        self.sb = self.sandbox(server.url, server.key)

    def path(self, name):
        return os.path.join(self.dir, name)

    def name(self):
        return self.id().rpartition(".")[2]

    def has(self, name, data):
        with open(self.path(name), "rb") as file:
            self.assertEqual(file.read(), data)


@both
class Shells(Sandboxes):
    def test_run(self):
        session = self.name()
        result = self.sb.run(f"cd {self.dir} && export WORD=here && false", session=session)
        self.assertEqual((result.exit_code, result.running, result.working_dir), (1, False, self.dir))
        result = self.sb.run("echo $WORD", session=session)
        self.assertEqual((result.output.strip(), result.exit_code), ("here", 0))
        self.assertIn(session, [s["name"] for s in self.sb.sessions()])
        self.sb.close_session(session)
        self.assertNotIn("here", self.sb.run("echo $WORD", session=session).output)

    def test_a_command_that_waits_for_input(self):
        session = self.name()
        result = self.sb.run("read -p 'Name? ' name && echo \"Hello, $name.\"", session=session)
        self.assertTrue(result.running)
        self.assertIsNone(result.exit_code)
        self.assertEqual((result.waiting.reason, result.waiting.prompt), ("input", "Name?"))
        result = self.sb.run("Ada", keys=True, session=session)
        self.assertIn("Hello, Ada.", result.output)
        self.assertEqual(result.exit_code, 0)

    def test_a_busy_shell_is_named(self):
        session = self.name()
        self.sb.run("true", session=session)
        self.assertTrue(self.sb.run("exec sleep 1000", session=session, wait=0.3).running)
        with self.assertRaisesRegex(actiond.NotRun, r"busy.*sleep 1000.*keys=True"):
            self.sb.run("echo hi", session=session)
        self.sb.run("C-c", keys=True, session=session)
        self.sb.close_session(session)

    def test_wait_ends_the_wait_alone(self):
        session = self.name()
        fifo = self.path("fifo")
        self.sb.run("true", session=session)  # so that the shell is there
        result = self.sb.run(f"mkfifo {fifo}; echo began; cat {fifo}", session=session, wait=1)
        self.assertTrue(result.running)
        self.assertIn("began", result.output)
        with self.assertRaises(actiond.NotRun) as raised:
            self.sb.run("true", session=session, wait=1)
        self.assertEqual(raised.exception.state, "busy")
        with open(fifo, "w") as file:
            file.write("at last\n")
        self.assertIn("at last", self.sb.run("", session=session).output)
        self.assertEqual(self.sb.run("echo after", session=session).output.strip(), "after")

    def test_keys_and_reset(self):
        session = self.name()
        self.sb.run("true", session=session)  # so that the shell is there
        self.assertTrue(self.sb.run("sleep 1000", session=session, wait=0.5).running)
        self.assertEqual(self.sb.run("C-c", keys=True, session=session).exit_code, 130)
        self.sb.run("cd /; shopt -s extglob", session=session)
        result = self.sb.run("pwd", session=session, reset=True)
        self.assertEqual(result.output.strip(), os.path.realpath(server.work))

    def test_output_as_it_comes(self):
        got = []
        result = self.sb.run("printf one; printf two", session=self.name(), on_output=got.append)
        self.assertEqual(result.exit_code, 0)
        self.assertIn(b"onetwo", b"".join(o.data for o in got))


@both
class Programs(Sandboxes):
    def test_streams_and_exit_code(self):
        result = self.sb.exec(["sh", "-c", "echo out; echo err >&2; exit 3"])
        self.assertEqual((result.stdout, result.stderr, result.returncode, result.ok), ("out\n", "err\n", 3, False))
        self.assertIn("out\n", result.output)
        self.assertGreater(result.pid, 0)

    def test_a_line_for_the_shell(self):
        result = self.sb.exec("echo $WORD in $(pwd)", cwd=self.dir, env={"WORD": "a $word 'quoted'"})
        self.assertEqual(result.stdout, f"a $word 'quoted' in {self.dir}\n")

    def test_text_and_bytes_as_input(self):
        self.assertEqual(self.sb.exec(["cat"], input="höflich").stdout, "höflich")
        data = bytes(range(256))
        self.assertEqual(self.sb.exec(["cat"], input=data).stdout_bytes, data)
        self.assertEqual(self.sb.exec(["cat"], input=b"").stdout_bytes, b"")

    def test_long_input_and_long_output(self):
        data = os.urandom(1 << 20) * 3
        self.assertEqual(self.sb.exec(["cat"], input=data).stdout_bytes, data)
        result = self.sb.exec(["sha256sum"], input=io.BytesIO(data))
        self.assertEqual(result.stdout.split()[0], hashlib.sha256(data).hexdigest())
        result = self.sb.exec(["cat"], input=data, max_output=1000)
        self.assertEqual((result.stdout_bytes, result.truncated), (data[:1000], True))

    def test_input_from_a_pipe_comes_as_it_is_written(self):
        r, w = os.pipe()
        self.addCleanup(os.close, w)
        os.write(w, b"abcdef")
        with os.fdopen(r, "rb") as file:
            self.assertEqual(self.sb.exec("head -c 3", input=file).stdout, "abc")
            os.write(w, b"x")  # ends the read that goes on

    def test_kinds_of_input(self):
        for data in (bytearray(b"in"), memoryview(b"in"), io.StringIO("in"), io.BytesIO(b"in")):
            self.assertEqual(self.sb.exec([pathlib.Path("/bin/cat")], cwd=pathlib.Path(self.dir), input=data).stdout, "in")
        with open(__file__) as text, self.assertRaisesRegex(TypeError, "binary"):
            self.sb.exec("cat", input=text)
        with self.assertRaises(TypeError):
            self.sb.exec("cat", input=3)

    def test_no_part_of_an_input_is_given_for_all(self):
        for data in (b"x" * 1_000_000, io.BytesIO(b"x")):
            with self.assertRaisesRegex(ValueError, "wait"):
                self.sb.exec(f"wc -c >{self.path('n')}", input=data, wait=0.3)
        self.assertFalse(os.path.exists(self.path("n")))

    def test_unread_input(self):
        self.assertEqual(self.sb.exec(["true"], input=os.urandom(4 << 20)).returncode, 0)

    def test_input_that_cannot_be_read_ends_the_program(self):
        class Broken(io.RawIOBase):
            def readable(self):
                return True

            def read(self, size=-1):
                raise OSError("it is broken")

        with self.assertRaisesRegex(OSError, "it is broken"):
            self.sb.exec(["sleep", "1000"], input=Broken(), action_id=self.id())
        eventually(lambda: self.sb.action(self.id()).ended)

    def test_timeout_ends_all_that_was_started(self):
        result = self.sb.exec(f"echo begun; (trap '' TERM HUP; sleep 1000) & echo $! >{self.path('pid')}; wait", timeout=0.5)
        self.assertTrue(result.timed_out)
        self.assertFalse(result.running)
        self.assertEqual(result.stdout, "begun\n")
        with open(self.path("pid")) as file:
            pid = file.read().strip()
        eventually(lambda: ended(pid))

    def test_wait_leaves_the_program_running(self):
        result = self.sb.exec("echo begun; exec sleep 1000", wait=0.5, action_id=self.id())
        self.assertTrue(result.running)
        self.assertIsNone(result.returncode)
        with self.assertRaises(actiond.Refused) as raised:
            self.sb.cancel(self.id())  # it was answered
        self.assertEqual(raised.exception.status, 409)
        self.sb.exec(["kill", "-KILL", "--", f"-{result.pid}"])
        eventually(lambda: ended(result.pid))

    def test_signals_are_as_in_subprocess(self):
        result = self.sb.exec("kill -9 $$")
        self.assertEqual((result.returncode, result.signal), (-9, "SIGKILL"))

    def test_check(self):
        with self.assertRaises(actiond.ExecFailed) as raised:
            self.sb.exec("echo it broke >&2; exit 4", check=True)
        self.assertEqual(raised.exception.result.returncode, 4)
        self.assertIn("it broke", str(raised.exception))
        self.assertTrue(self.sb.exec("true", check=True).ok)

    def test_a_program_that_is_not_there(self):
        result = self.sb.exec(["no-such-program"])
        self.assertEqual((result.returncode, result.pid), (127, None))
        self.assertIn("no-such-program", result.stderr)

    def test_a_terminal(self):
        result = self.sb.exec("tty; stty size", tty=(7, 33))
        self.assertRegex(result.stdout, r"^/dev/pts/[0-9]+\r\n7 33\r\n$")

    def test_output_as_it_comes(self):
        got = []
        result = self.sb.exec("echo one; echo two >&2; echo three", on_output=got.append)
        self.assertEqual(b"".join(o.data for o in got if o.stream == "stdout"), b"one\nthree\n")
        self.assertEqual(b"".join(o.data for o in got if o.stream == "stderr"), b"two\n")
        self.assertEqual(result.stdout, "one\nthree\n")

    def test_a_callback_that_raises_ends_the_program(self):
        def refuse(output):
            raise KeyError("enough")

        with self.assertRaisesRegex(KeyError, "enough"):
            self.sb.exec("echo begun; sleep 1000", on_output=refuse, action_id=self.id())
        self.assertTrue(eventually(lambda: self.sb.action(self.id()).ended))

    def test_a_user_that_the_server_does_not_allow(self):
        with self.assertRaises(actiond.Refused):
            self.sb.exec("id -un", user="no-such-user")


@both
class Actions(Sandboxes):
    def test_the_same_identity_runs_once(self):
        for _ in range(3):
            result = self.sb.exec(f"echo ran >>{self.path('ran')}; echo $$", action_id=self.id())
        self.assertEqual(result.action_id, self.id())
        self.has("ran", b"ran\n")
        with self.assertRaises(actiond.Refused) as raised:
            self.sb.exec("echo another command", action_id=self.id())
        self.assertEqual(raised.exception.status, 422)

    def test_start_follow_output(self):
        key = self.sb.start("exec", {"command": "echo one; echo two >&2; read line; echo $line; exit 5", "stdin": "stream"}, action_id=self.id())
        self.assertEqual(key, self.id())
        self.assertFalse(self.sb.action(key).ended)
        self.sb.feed(key, io.BytesIO(b"three\nfour\n"))
        outputs = list(self.sb.follow(key))
        self.assertEqual(b"".join(o.data for o in outputs if o.stream == "stdout"), b"one\nthree\n")
        self.assertEqual(b"".join(o.data for o in self.sb.follow(key, after=outputs[0].seq)), b"".join(o.data for o in outputs[1:]))
        record = self.sb.action(key, wait=20)
        self.assertEqual((record.state, record.kind, record.observation["extras"]["exit_code"]), ("done", "exec", 5))
        self.assertEqual(self.sb.output(key, stream="stdout"), b"one\nthree\n")
        self.assertEqual(self.sb.output(key, stream="stdout", offset=2, most=4), b"e\nth")
        self.assertIn(key, [a.id for a in self.sb.actions(limit=1000)])

    def test_cancel_and_signal(self):
        key = self.sb.start("exec", {"command": "trap 'echo got it' USR1; echo ready; while :; do sleep 0.1; done"})
        following = iter(self.sb.follow(key)) if self.kind == "sync" else None
        if following:
            self.assertEqual(next(following).data, b"ready\n")
        else:
            eventually(lambda: self.sb.output(key))
        self.sb.signal(key, "SIGUSR1")
        eventually(lambda: b"got it" in self.sb.output(key))
        record = self.sb.cancel(key)
        self.assertEqual((record.state, record.outcome), ("done", "cancelled"))

    def test_actions_that_are_not_there(self):
        for call in (self.sb.action, self.sb.cancel, self.sb.output, lambda id: list(self.sb.follow(id))):
            with self.assertRaises(actiond.NotFound):
                call("never-was")

    def test_act(self):
        with open(self.path("a.txt"), "w") as file:
            file.write("needle\n")
        observation = self.sb.act("grep", {"pattern": "needle", "path": self.dir})
        self.assertIn("a.txt", observation["content"])
        with self.assertRaises(actiond.Refused) as raised:
            self.sb.act("no_such_action", {})
        self.assertIn(raised.exception.status, (400, 422))


@both
class Files(Sandboxes):
    def test_write_and_read(self):
        data = os.urandom(3 << 20)
        info = self.sb.write(self.path("deep/er/file"), data, mode=0o750)
        self.assertEqual((info.size, info.created, info.sha256), (len(data), True, hashlib.sha256(data).hexdigest()))
        self.assertEqual(os.stat(self.path("deep/er/file")).st_mode & 0o777, 0o750)
        self.assertEqual(self.sb.read(self.path("deep/er/file")), data)
        self.assertFalse(self.sb.write(self.path("deep/er/file"), "wörter").created)
        self.assertEqual(self.sb.read(self.path("deep/er/file")).decode(), "wörter")
        with self.assertRaises(actiond.TooLarge):
            self.sb.read(self.path("deep/er/file"), max_bytes=3)

    def test_names_with_all_kinds_of_characters(self):
        for name in ("a b", "a?b=c&d#e", "100%25", "ä/ö", "new\nline", os.fsdecode(b"\xff")):
            self.sb.write(self.path(name), name.encode("utf-8", "replace"))
            with open(self.path(name), "rb") as file:
                self.assertEqual(file.read(), name.encode("utf-8", "replace"))
            self.assertEqual(self.sb.read(self.path(name)), name.encode("utf-8", "replace"))

    def test_kinds_of_data_and_paths(self):
        path = pathlib.Path(self.path("file"))
        for data in (bytearray(b"data"), memoryview(b"data"), array.array("b", b"data")):
            self.sb.write(path, data)
            self.assertEqual(self.sb.read(path), b"data")
        with self.assertRaises(TypeError):
            self.sb.write(path, 3)
        self.sb.delete(path)
        self.assertEqual(self.sb.list(pathlib.Path(self.dir)), [])

    def test_conditions(self):
        info = self.sb.write(self.path("file"), b"1", if_new=True)
        for more in ({"if_new": True}, {"if_sha256": "0" * 64}):
            with self.assertRaises(actiond.Refused) as raised:
                self.sb.write(self.path("file"), b"2", **more)
            self.assertEqual(raised.exception.status, 412)
        self.sb.write(self.path("file"), b"3", if_sha256=info.sha256)
        self.has("file", b"3")

    def test_relative_paths(self):
        name = os.path.join(os.path.basename(self.dir), "file")
        self.sb.write(name, b"data")
        self.has("file", b"data")
        self.assertEqual(self.sb.read(name), b"data")
        self.assertIn("+text", self.sb.edit(name, "data", "text"))
        self.assertIn("+more", self.sb.edit(pathlib.Path(name), "text", "more"))
        self.has("file", b"more")

    def test_errors_are_those_of_python(self):
        self.sb.write(self.path("file"), b"data")
        for error, call in ((FileNotFoundError, lambda: self.sb.read(self.path("none"))),
                            (IsADirectoryError, lambda: self.sb.read(self.dir)),
                            (IsADirectoryError, lambda: self.sb.write(self.dir, b"")),
                            (NotADirectoryError, lambda: self.sb.read(self.path("file/below"))),
                            (FileNotFoundError, lambda: self.sb.delete(self.path("none"))),
                            (FileNotFoundError, lambda: self.sb.edit(self.path("none"), "a", "b")),
                            (FileNotFoundError, lambda: self.sb.download(self.path("none"), self.path("local")))):
            with self.assertRaises(error) as raised:
                call()
            self.assertIsInstance(raised.exception, actiond.ActiondError)

    def test_edit_and_delete(self):
        self.sb.write(self.path("file"), "one\ntwo\none\n")
        with self.assertRaises(actiond.Failed) as raised:
            self.sb.edit(self.path("file"), "one", "1")
        self.assertEqual(raised.exception.code, "multiple_matches")
        with self.assertRaises(actiond.Failed) as raised:
            self.sb.edit(self.path("file"), "three", "3")
        self.assertEqual(raised.exception.code, "no_match")
        self.assertIn("+2", self.sb.edit(self.path("file"), "two", "2"))
        self.sb.edit(self.path("file"), "one", "1", all=True)
        self.has("file", b"1\n2\n1\n")
        self.sb.delete(self.path("file"))
        self.assertFalse(os.path.exists(self.path("file")))

    def test_upload_and_download_a_file(self):
        data = os.urandom(2 << 20)
        with tempfile.TemporaryDirectory() as local:
            source, target = os.path.join(local, "source"), os.path.join(local, "target")
            with open(source, "wb") as file:
                file.write(data)
            os.chmod(source, 0o700)
            self.sb.upload(source, self.path("new/file"))
            self.has("new/file", data)
            self.assertEqual(os.stat(self.path("new/file")).st_mode & 0o777, 0o700)
            self.sb.download(self.path("new/file"), target)
            with open(target, "rb") as file:
                self.assertEqual(file.read(), data)
            self.assertEqual(os.stat(target).st_mode & 0o700, 0o700)

    def test_download_a_directory(self):
        self.sb.write(self.path("tree/a/file"), b"data")
        os.symlink("a/file", self.path("tree/inside"))
        os.symlink("/etc/passwd", self.path("tree/outside"))
        os.mkfifo(self.path("tree/fifo"))
        with tempfile.TemporaryDirectory() as local:
            self.sb.download(self.path("tree"), local)
            self.assertEqual(sorted(os.listdir(local)), ["a", "inside"])
            with open(os.path.join(local, "inside"), "rb") as file:
                self.assertEqual(file.read(), b"data")
            with self.assertRaises(actiond.TooLarge):
                self.sb.download(self.path("tree"), local, max_bytes=100)


@both
class Directories(Sandboxes):
    def test_upload_and_download_a_directory(self):
        with tempfile.TemporaryDirectory() as source, tempfile.TemporaryDirectory() as target:
            os.makedirs(os.path.join(source, "a/b"))
            for name, data in (("a/b/file", b"data"), ("script", b"#!/bin/sh\necho ran\n")):
                with open(os.path.join(source, name), "wb") as file:
                    file.write(data)
            os.chmod(os.path.join(source, "script"), 0o755)
            self.sb.upload(source, self.path("new/tree"))
            self.assertEqual(self.sb.exec([self.path("new/tree/script")]).stdout, "ran\n")
            self.sb.download(self.path("new/tree"), target)
            with open(os.path.join(target, "a/b/file"), "rb") as file:
                self.assertEqual(file.read(), b"data")

    def test_all_names_of_a_file_are_sent(self):
        with tempfile.TemporaryDirectory() as local:
            for directory in ("a", "b"):
                os.mkdir(os.path.join(local, directory))
            for name, first in (("one", b"data"), ("empty", b"")):
                with open(os.path.join(local, "a", name), "wb") as file:
                    file.write(first)
                os.link(os.path.join(local, "a", name), os.path.join(local, "b", name))
            os.link(os.path.join(local, "a", "one"), os.path.join(local, "a", "two"))
            self.sb.upload(pathlib.Path(local), pathlib.Path(self.path("u")))
        for name, data in (("a/one", b"data"), ("a/two", b"data"), ("b/one", b"data"), ("a/empty", b""), ("b/empty", b"")):
            self.has("u/" + name, data)

    def test_files_without_a_size_are_sent(self):
        with open("/proc/version", "rb") as file:
            version = file.read()
        self.sb.upload("/proc/version", self.path("v"))
        self.has("v", version)
        self.sb.upload("/proc/sys/kernel/random", self.path("d"))
        self.assertTrue(os.path.getsize(self.path("d/boot_id")))

    def test_times_are_kept(self):
        for name, size in (("small", 1), ("large", 1 << 20)):
            self.sb.write(self.path("d/" + name), b"x" * size)
            os.utime(self.path("d/" + name), (10**9, 10**9))
        with tempfile.TemporaryDirectory() as local:
            self.sb.download(self.path("d"), local)
            self.sb.download(self.path("d/small"), os.path.join(local, "one"))
            self.assertEqual([os.stat(os.path.join(local, n)).st_mtime for n in ("small", "large", "one")], [10**9] * 3)

    def test_what_a_download_leaves_out_is_named(self):
        self.sb.write(self.path("d/file"), b"data")
        os.symlink("/etc", self.path("d/away"))
        os.mkfifo(self.path("d/fifo"))
        with tempfile.TemporaryDirectory() as local:
            left = self.sb.download(pathlib.Path(self.path("d")), local)
            self.assertEqual(os.listdir(local), ["file"])
            self.assertEqual([text.split()[0] for text in sorted(left)], ["d/away", "d/fifo"])

    def test_list_and_remove(self):
        self.sb.write(self.path("file"), b"data", mode=0o640)
        os.mkdir(self.path("directory"))
        os.symlink("file", self.path("link"))
        entries = {e.name: e for e in self.sb.list(self.dir)}
        self.assertEqual({name: e.type for name, e in entries.items()}, {"file": "file", "directory": "directory", "link": "symlink"})
        self.assertEqual((entries["file"].size, int(entries["file"].mode, 8) & 0o777, entries["link"].target), (4, 0o640, "file"))
        self.assertTrue(entries["directory"].is_dir)
        self.assertIn(os.path.basename(self.dir), [e.name for e in self.sb.list()])
        for error, name in ((FileNotFoundError, "none"), (NotADirectoryError, "file")):
            with self.assertRaises(error):
                self.sb.list(self.path(name))
        self.sb.write(self.path("directory/below/file"), b"data")
        self.sb.delete(self.path("directory"), recursive=True)
        self.assertEqual(sorted(os.listdir(self.dir)), ["file", "link"])


@both
class Tools(Sandboxes):
    def test_tools_and_calls(self):
        names = [t["name"] for t in self.sb.tools(format="anthropic")]
        self.assertIn("execute_bash", names)
        result = self.sb.call("execute_bash", {"command": f"echo called >>{self.path('calls')}; cat {self.path('calls')}"}, session=self.name(), tool_call_id="call_1",
                              action_id=self.id())
        self.assertIn("called", result.text)
        self.assertFalse(result.is_error)
        flat = self.sb.tools(dialect="actiond", format="openai-responses")
        self.assertEqual(["bash", "read", "edit", "search"], [t["name"] for t in flat][:4])
        path = self.path("called")
        for name, arguments in (("bash", {"command": "# several\ntrue"}), ("edit", {"path": path, "new_str": "x\n"}),
                                ("edit", {"path": path, "old_str": "x", "new_str": "y"}), ("read", {"path": path})):
            result = self.sb.call(name, arguments, dialect="actiond", session=self.name())
            self.assertFalse(result.is_error, result.text)
        self.assertIn("y", result.text)
        result = self.sb.call("no_such_tool", "{}")
        self.assertTrue(result.is_error)
        self.assertTrue(result.error_code)
        result = self.sb.call("execute_bash", "{not json")
        self.assertTrue(result.is_error)

    def test_the_server(self):
        info = self.sb.server_info()
        self.assertEqual(info["working_dir"], os.path.realpath(server.work))
        self.assertTrue(self.sb.usage())
        with self.assertRaises(actiond.ActiondError):
            self.sb.preview(80)

    def test_ports(self):
        self.sb.start("exec", {"argv": ["python3", "-m", "http.server", "--bind", "127.0.0.1", "0"]}, action_id=self.id())
        pid = eventually(lambda: self.sb.action(self.id()).observation.get("extras", {}).get("pid") or
                         next((p.pid for p in self.sb.ports() if "http.server" in p.command), 0))
        eventually(lambda: pid in [p.pid for p in self.sb.ports()])
        self.sb.cancel(self.id())

    def test_a_wrong_key(self):
        sandbox = self.sandbox(server.url, "wrong-" + "k" * 20)
        with self.assertRaises(PermissionError) as raised:
            sandbox.run("true")
        self.assertNotIn("k" * 20, repr(raised.exception) + repr(sandbox))

    def test_no_server(self):
        sandbox = self.sandbox("http://127.0.0.1:1")
        with self.assertRaises(ConnectionError) as raised:
            sandbox.exec("true")
        self.assertIsInstance(raised.exception, actiond.Unreachable)


class Forks(Both):
    def test_no_process_is_left(self):
        program("server")
        with tempfile.TemporaryDirectory() as directory:
            for end in ("s.close()", "pass", "os._exit(0)", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 9)"):
                code = f"""if True:
                    import actiond, os
                    s = actiond.local({directory!r})
                    s.exec("env -i setsid sleep 1000 >/dev/null 2>&1 & echo $! >one")
                    s.run("mkfifo up; (setsid sh -c 'echo $$ >two; echo >up; sleep 1000' &); read -r line <up; rm up; echo $PPID >server")
                    {end}"""
                subprocess.run([sys.executable, "-c", code], timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
                for name in ("one", "two", "server"):
                    path = os.path.join(directory, name)
                    eventually(lambda: os.path.exists(path) and os.path.getsize(path))
                    with open(path) as file:
                        pid = file.read().strip()
                    eventually(lambda: ended(pid))
                    os.unlink(path)

    def test_a_source_that_brings_nothing_keeps_no_program(self):
        program("server")
        code = """if True:
            import actiond, asyncio, os
            r, w = os.pipe()
            async def main():
                async with await actiond.async_local() as s:
                    return await s.exec("true", input=os.fdopen(r, "rb"))
            asyncio.run(main())"""
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})

    def test_a_fork_that_ends_leaves_the_sandbox(self):
        sandbox = self.local()
        sandbox.write("keep", b"data")
        child = os.fork()
        if child == 0:
            sandbox.close()
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(sandbox.read("keep"), b"data")


@both
class LocalServers(Both):
    def test_a_server_of_ones_own(self):
        program("server")
        sandbox = self.local()
        where = sandbox.run("pwd").output.strip()
        self.assertEqual(sandbox.exec(["cat"], input=b"\xff" * 300_000).stdout_bytes, b"\xff" * 300_000)
        sandbox.write("file", b"data")
        self.assertTrue(os.path.exists(os.path.join(where, "file")))
        sandbox.close()
        self.assertFalse(os.path.exists(where))

    def test_it_warns(self):
        with self.assertWarnsRegex(RuntimeWarning, "actiond.local.. isolates nothing.*user") as caught:
            self.local()
        if self.kind == "sync":
            self.assertTrue(caught.filename.endswith("support.py"))

    def test_a_directory_that_is_kept(self):
        program("server")
        with tempfile.TemporaryDirectory() as directory:
            sandbox = self.local(directory)
            sandbox.write("file", b"data")
            sandbox.close()
            self.assertEqual(os.listdir(directory), ["file"])

    def test_a_socket_that_is_bound_and_takes_nothing(self):
        with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as bound:
            path = os.path.join(directory, "socket")
            self.assertFalse(_listens(path))
            bound.bind(path)
            self.assertFalse(_listens(path))
            bound.listen()
            self.assertTrue(_listens(path))

    def test_a_program_that_is_none(self):
        with self.assertRaises(FileNotFoundError):
            actiond.local(server="/no/such/program")
        with self.assertRaisesRegex(actiond.ActiondError, "did not start"):
            actiond.local(server="/bin/false")

    def test_the_server_beside_runtimectl(self):
        with tempfile.TemporaryDirectory() as directory:
            directory = os.path.realpath(directory)
            for name in ("unpacked/runtimectl", "unpacked/server", "other/server"):
                path = os.path.join(directory, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o755), "w") as file:
                    file.write("#!/bin/sh\n")
            os.mkdir(os.path.join(directory, "bin"))
            os.symlink("../unpacked/runtimectl", os.path.join(directory, "bin", "runtimectl"))
            for first, want in (("unpacked", "unpacked/server"), ("bin", "unpacked/server"), ("other", "")):
                path = os.pathsep.join([os.path.join(directory, first), os.path.join(directory, "other")])
                with unittest.mock.patch.dict(os.environ, {"PATH": path}):
                    self.assertEqual(_beside_runtimectl("server"), want and os.path.join(directory, want), first)


@both
class Crashes(Both):
    def test_a_server_that_dies_meanwhile(self):
        mine = Server()
        self.addCleanup(mine.stop)
        sandbox = self.sandbox(mine.url, mine.key)
        began = os.path.join(mine.work, "began")
        errors = []

        def wait():
            try:
                sandbox.exec(f"echo printed; echo began >>{began}; sleep 1000", action_id="it")
            except actiond.ActiondError as e:
                errors.append(e)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: os.path.exists(began) and b"printed" in sandbox.output("it"))
        mine.kill()
        mine.start()
        waiting.join(60)
        self.assertEqual([type(e) for e in errors], [actiond.Unknown])
        self.assertEqual((errors[0].action_id, errors[0].output.strip()), ("it", "printed"))
        with self.assertRaises(actiond.Unknown):
            sandbox.exec(f"echo printed; echo began >>{began}; sleep 1000", action_id="it")
        with open(began) as file:
            self.assertEqual(file.read(), "began\n")


class Tasks(unittest.TestCase):
    """What only asyncio has."""

    def test_a_cancelled_task_ends_its_command(self):
        loop = Loop()
        self.addCleanup(loop.stop)

        async def go():
            async with actiond.AsyncSandbox(server.url, server.key) as sandbox:
                for action in (lambda: sandbox.exec("echo $$; sleep 1000", action_id="cancelled-exec"),
                               lambda: sandbox.run("sleep 1000", session="cancelled", action_id="cancelled-run"),
                               lambda: sandbox.exec("sleep 1000", action_id="cancelled-stream", on_output=print),
                               lambda: sandbox.call("execute_bash", {"command": "sleep 1000"}, action_id="cancelled-call")):
                    task = asyncio.ensure_future(action())
                    known = []
                    while not known:
                        known = [a for a in await sandbox.actions(state="running") if a.id.startswith("cancelled-")]
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                    self.assertTrue((await sandbox.action(known[0].id, wait=20)).ended)

        loop.run(go())

    def test_many_at_once(self):
        loop = Loop()
        self.addCleanup(loop.stop)

        async def go():
            async with actiond.AsyncSandbox(server.url, server.key) as sandbox:
                return await asyncio.gather(*(sandbox.exec(f"sleep 1; echo {i}") for i in range(60)))

        self.assertEqual([r.stdout for r in loop.run(go())], [f"{i}\n" for i in range(60)])


if __name__ == "__main__":
    unittest.main()
