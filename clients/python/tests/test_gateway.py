"""The client against the gateway of this repository, as docker() starts it, with processes of this machine as sandboxes."""

import tempfile
import unittest

from .support import Blocking, Both, both, ended, eventually, program

import actiond


@both
class Gateways(Both):
    def setUp(self):
        super().setUp()
        program("server")
        program("runtimectl")
        state = tempfile.TemporaryDirectory()
        self.addCleanup(state.cleanup)
        self.state = state.name
        self.gw = self.gateway()

    def gateway(self):
        flags = ("--on", "local", "--state-dir", self.state)
        if self.kind == "sync":
            made = actiond.docker(*flags)
        else:
            made = Blocking(self.loop.run(actiond.async_docker(*flags)), self.loop)
        self.addCleanup(made.close)
        return made

    def test_create_use_and_remove(self):
        sandbox = self.gw.create(name="one", labels={"task": "a b"}, env={"WORD": "here"}, ttl_seconds=3600)
        self.assertEqual((sandbox.info.name, sandbox.info.state, sandbox.info.labels["task"]), ("one", "ready", "a b"))
        self.assertTrue(sandbox.info.deadline)
        self.assertEqual(sandbox.run("echo $WORD").output.strip(), "here")
        self.assertEqual(sandbox.exec(["cat"], input=b"\0\xff").stdout_bytes, b"\0\xff")
        sandbox.write("file", b"data")
        self.assertEqual(self.gw.get("one").read("file"), b"data")
        self.assertEqual([s.id for s in self.gw.list("label=task=a b").sandboxes], [sandbox.id])
        self.assertGreater(self.gw.renew(sandbox.id, 7200).deadline, sandbox.info.deadline)
        with self.assertRaises(actiond.Refused) as raised:
            self.gw.create(name="one")
        self.assertEqual(raised.exception.status, 409)
        self.gw.delete(sandbox.id)
        self.gw.delete(sandbox.id)
        with self.assertRaises(actiond.NotFound):
            self.gw.get("one")

    def test_the_same_key_gives_the_same_sandbox(self):
        first = self.gw.create(key="task-1")
        second = self.gw.create(key="task-1")
        self.assertEqual(first.id, second.id)
        self.assertEqual(len(self.gw.list().sandboxes), 1)

    def test_pages(self):
        made = [self.gw.create().id for _ in range(3)]
        page = self.gw.list(limit=2)
        rest = self.gw.list(limit=2, after=page.next)
        self.assertEqual(sorted(s.id for s in page.sandboxes + rest.sandboxes), sorted(made))
        self.assertEqual(rest.next, "")

    def test_a_context_removes_what_create_made(self):
        if self.kind == "sync":
            with self.gw.create() as sandbox:
                id = sandbox.id
            with self.gw.get(self.gw.create().id) as other:
                pass
        else:
            async def go():
                async with await self.gw.inner.create() as sandbox:
                    id = sandbox.id
                made = await self.gw.inner.create()
                async with await self.gw.inner.get(made.id) as other:
                    return id, other
            id, other = self.loop.run(go())
        self.assertEqual([s.id for s in self.gw.list().sandboxes], [other.id])
        self.assertNotEqual(id, other.id)

    def test_what_a_sandbox_cannot_have(self):
        with self.assertRaises(actiond.Refused):
            self.gw.create(no_such_member=1)
        with self.assertRaises(actiond.NotFound):
            self.gw.get("no-such-sandbox")

    def test_closing_removes_what_was_made(self):
        sandbox = self.gw.create()
        pid = sandbox.exec("echo $PPID").stdout.strip()
        self.assertFalse(ended(pid))
        self.gw.close()
        eventually(lambda: ended(pid))
        again = self.gateway()
        self.assertEqual(again.list().sandboxes, [])

    def test_a_wrong_key(self):
        inner = self.gw.inner if self.kind == "async" else self.gw
        stranger = self.client(f"unix://{inner._pool.address.socket}", "wrong" * 10)
        with self.assertRaises(PermissionError):
            stranger.create()


class Children(unittest.TestCase):
    def test_a_gateway_that_does_not_start(self):
        program("runtimectl")
        with self.assertRaisesRegex(actiond.ActiondError, "no-such-flag"):
            actiond.docker("--no-such-flag")


if __name__ == "__main__":
    unittest.main()
