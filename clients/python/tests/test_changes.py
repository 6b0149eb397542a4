"""What actions change, and taking it back, on the server of this repository."""

import unittest

from .support import Both, Scripted, Server, both

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
        self.sb.exec(f"rm -rf {server.work}/*")
        self.sb.exec("mkdir src; echo one > src/a; echo two > src/b", check=True)

    def files(self):
        return self.sb.exec("cd src 2>/dev/null && grep -r . . | sort").stdout

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
