"""What actions change, and taking it back, on the server of this repository."""

import asyncio
import concurrent.futures
import json
import signal
import unittest

from .support import Both, Scripted, Server, answering, both, response

import actiond


def setUpModule():
    global server
    server = Server("--changes", "undo")
    unittest.addModuleCleanup(server.stop)


@both
class Changes(Both):
    def setUp(self):
        super().setUp()
        self.sb = self.sandbox(server.url, server.key)
        for name in self.loops():  # of a test that failed
            self.sb.remove_checkpoint(name)
        self.sb.exec(f"rm -rf {server.work}/*")
        self.sb.exec("mkdir src; echo one > src/a; echo two > src/b", check=True)

    def files(self):
        return self.sb.exec("cd src 2>/dev/null && grep -r . . | sort").stdout

    def wrap(self, name, before=lambda *args: None, after=lambda result: None):
        """Call functions before and after a request that changes something; the first one may be asynchronous."""
        sandbox = getattr(self.sb, "inner", self.sb)
        real = getattr(sandbox, name)

        def call(*args, **more):
            if more.get("dry_run"):
                return real(*args, **more)
            before(*args)
            result = real(*args, **more)
            after(result)
            return result

        async def call_async(*args, **more):
            if more.get("dry_run"):
                return await real(*args, **more)
            waits = before(*args)
            if waits:
                await waits
            result = await real(*args, **more)
            after(result)
            await asyncio.sleep(0)  # a task that was cancelled ends here
            return result
        setattr(sandbox, name, call if self.kind == "sync" else call_async)
        self.addCleanup(delattr, sandbox, name)
        return sandbox

    def loops(self):
        return [c["name"] for c in self.sb.checkpoints() if c["name"].startswith(("before-bisect-", "attempt/"))]

    def breaks(self):
        """Let the third of five actions break something, and return the arguments of its bisect."""
        name = self.id().rpartition(".")[2] + self.kind
        good = self.sb.checkpoint("good-" + name)["name"]
        for n in range(5):
            self.sb.exec(f"echo {n} >> src/a; test {n} != 2 || rm src/b")
        return good, self.sb.checkpoint("bad-" + name)["state"], "test -e src/b"

    def test_restore(self):
        whole = "./a:one\n./b:two\n"
        name = self.id().rpartition(".")[2] + self.kind
        point = self.sb.checkpoint(name, verify=True, wait_seconds=30, expires_seconds=60)
        self.assertEqual((point["name"], point["missing"], "expires" in point), (name, 0, True))
        self.assertIn((name, point["state"]), [(c["name"], c["state"]) for c in self.sb.checkpoints()])
        with self.assertRaises(actiond.Refused) as raised:
            self.sb.checkpoint(name)
        self.assertEqual(raised.exception.status, 409)

        self.sb.exec("rm -rf src")
        changed = self.sb.changes(point["state"], diff=True)
        self.assertEqual([(p["op"], p["path"]) for p in changed["paths"]], [("deleted", "src"), ("deleted", "src/a"), ("deleted", "src/b")])
        self.assertEqual(self.sb.changes(point["state"], path="src/a")["counts"]["deleted"], 1)
        done = self.sb.undo()
        self.assertEqual((done["refused"], done["counts"]["created"]), ([], 3))
        self.assertEqual(self.files(), whole)
        self.sb.restore(done["before"])
        self.assertEqual(self.files(), "")
        self.assertTrue(self.sb.restore(name, dry_run=True)["dry_run"])
        self.assertEqual(self.files(), "")
        self.sb.restore(name, paths=["src/b"])
        self.assertEqual(self.files(), "./b:two\n")
        self.sb.restore(name)
        self.assertEqual(self.files(), whole)
        self.sb.remove_checkpoint(name)
        for missing in (lambda: self.sb.remove_checkpoint(name), lambda: self.sb.restore(name)):
            with self.assertRaises(actiond.NotFound):
                missing()

    def test_undo_of_one_action(self):
        self.sb.exec("echo more >> src/a; echo more >> src/b")
        tried = self.sb.attempt("exec", {"command": "echo 1 >> src/a; echo 1 >> src/b"})
        self.sb.keep(tried.id)
        self.sb.exec("echo 2 >> src/b")
        done = self.sb.undo(only=tried.changes["action"])
        self.assertEqual([r["path"] for r in done["refused"]], ["src/b"])
        self.assertEqual(self.files(), "./a:more\n./a:one\n./b:1\n./b:2\n./b:more\n./b:two\n")
        self.sb.undo(tried.changes["action"])
        self.assertEqual(self.files(), "./a:more\n./a:one\n./b:more\n./b:two\n")

    def test_attempts(self):
        before = self.files()
        tried = self.sb.attempt("exec", {"command": "rm src/a; exit 3"})
        self.assertEqual((tried.observation["extras"]["exit_code"], tried.changes["counts"]["deleted"]), (3, 1))
        self.assertEqual([a["attempt"] for a in self.sb.attempts()], [tried.id])
        with self.assertRaises(actiond.Left) as raised:
            self.sb.attempt("exec", {"command": "true"})
        self.assertIn("attempt/" + tried.id, str(raised.exception))
        self.sb.exec("touch theirs")
        with self.assertRaises(actiond.Foreign):
            self.sb.discard(tried.id)
        self.assertEqual(self.sb.discard(tried.id, force=True)["counts"]["created"], 1)
        self.assertEqual((self.files(), self.sb.attempts()), (before, []))
        tried = self.sb.attempt("run", {"command": "rm src/a", "blocking": True})
        self.assertEqual(self.sb.keep(tried.id)["counts"]["deleted"], 1)
        self.assertEqual(self.files(), "./b:two\n")
        with self.assertRaises(actiond.NotFound):
            self.sb.discard(tried.id)

    def test_discard_names_the_state_with_what_came_in_between(self):
        tried = self.sb.attempt("exec", {"command": "rm src/a"})
        sandbox = self.wrap("restore", lambda to: sandbox.exec("touch src/theirs"))
        with self.assertRaisesRegex(actiond.Foreign, "another client changed the workspace: action .*; the state before the restore is s") as raised:
            self.sb.discard(tried.id)
        self.assertEqual(self.loops(), ["attempt/" + tried.id])
        changed = self.sb.changes("attempt/" + tried.id, str(raised.exception).rpartition(" ")[2])
        self.assertIn("src/theirs", [p["path"] for p in changed["paths"]])
        self.sb.discard(tried.id, force=True)

    def test_bisect_interrupted_in_a_restore(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        ends, before, interrupts = self.breaks(), self.files(), []

        async def search():
            task = asyncio.ensure_future(collect())
            interrupts.append(task.cancel)
            await task

        async def collect():
            return [event async for event in self.sb.inner.bisect(*ends)]

        if self.kind == "sync":
            interrupts.append(lambda: signal.raise_signal(signal.SIGINT))
        self.wrap("restore", after=lambda result: interrupts and interrupts.pop()())
        with self.assertRaises((KeyboardInterrupt, asyncio.CancelledError, concurrent.futures.CancelledError)):
            list(self.sb.bisect(*ends)) if self.kind == "sync" else self.loop.run(search())
        self.assertEqual((self.files(), self.loops()), (before, []))

    def test_bisect_interrupted_at_its_checkpoint(self):
        def cut(made):
            raise actiond.Cut()
        ends = self.breaks()
        self.wrap("checkpoint", after=cut)
        with self.assertRaises(actiond.Cut):
            list(self.sb.bisect(*ends))
        self.assertEqual(self.loops(), [])

    def test_bisect_overwrites_nothing_silently(self):
        ends = self.breaks()
        sandbox = self.wrap("restore", lambda to: sandbox.exec("touch theirs") if to.startswith("before-bisect-") else None)
        with self.assertRaisesRegex(actiond.Left, "restoring the present: another client changed the workspace: action"):
            list(self.sb.bisect(*ends))
        self.assertEqual(len(self.loops()), 1)
        self.sb.remove_checkpoint(self.loops()[0])

    def test_bisect_reports_what_did_not_come_back(self):
        ends = self.breaks()
        self.wrap("restore", after=lambda result: result.update(refused=[{"path": "dev", "why": "it is a device"}], refused_count=1))
        events = list(self.sb.bisect(*ends))
        detail = "1 paths are not what they were, such as 'dev': it is a device"
        self.assertEqual({e["detail"] for e in events if e["event"] == "tested"}, {detail})
        name = self.loops()[0]
        self.assertEqual(events[-1]["detail"], f"{detail}; the checkpoint {name} has the state before")
        self.sb.remove_checkpoint(name)

    def test_the_log_may_be_in_another_order(self):
        pages = [{"entries": [{"after": "s2"}, {"after": "s9", "n": 9}, {"after": ""}], "next": 5},
                 {"entries": [{"after": ""}, {"after": "s8"}, {"after": "s3"}], "next": 4}]
        script = answering(*(response(json.dumps(page).encode()) for page in pages))
        sandbox = self.sandbox(Scripted(self, script).url)
        self.assertEqual([e["after"] for e in sandbox._entries("s3")], ["s9", "s8"])

    def test_bisect(self):
        good = self.sb.checkpoint("good-" + self.kind)["name"]
        for n in range(6):
            self.sb.exec(f"echo {n} >> src/a; test {n} != 3 || rm src/b")
        bad = self.sb.checkpoint("bad-" + self.kind)["state"]
        before = self.files()
        events = list(self.sb.bisect(good, bad, ["test", "-e", "src/b"]))
        self.assertEqual([e["event"] for e in events], ["testing", "tested"] * events[-1]["tests"] + ["result"])
        culprit = [c for c in self.sb.actions(limit=1000) if c.text.startswith("echo 3")][0]  # the newest
        self.assertEqual(events[-1]["n"], culprit.n)
        self.assertEqual(self.files(), before)
        with self.assertRaises(actiond.Failed):
            list(self.sb.bisect(good, bad, "no-such-command"))
        self.assertEqual(self.files(), before)
        if self.kind == "async":  # whose iteration ends before the test goes on
            return
        with self.assertRaises(actiond.Foreign) as raised:
            for event in self.sb.bisect(good, bad, "true"):
                if event["event"] == "tested":
                    self.sb.exec("touch theirs")
        name = [c["name"] for c in self.sb.checkpoints() if c["name"].startswith("before-bisect-")][0]
        self.assertIn(name, str(raised.exception))
        with self.assertRaises(actiond.Left):
            list(self.sb.bisect(good, bad, "true"))
        self.sb.restore(name)
        self.assertEqual(self.files(), before)
        self.sb.remove_checkpoint(name)


@both
class Scripts(Both):
    def test_a_restore_is_sent_once(self):
        server = Scripted(self, lambda connection, head: False)
        for call in ("undo", "checkpoint"):
            with self.assertRaises(actiond.Cut):
                sandbox = self.sandbox(server.url)
                getattr(sandbox, call)(*{"undo": ()}.get(call, ("x",)))
        self.assertEqual(len(server.requests), 2)
