"""The client against the gateway of this repository, as docker() starts it, with processes of this machine as sandboxes."""

import json
import tempfile
import unittest

from .support import Blocking, Both, Scripted, answering, both, ended, eventually, program, response

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

    def test_a_platform_without_policies(self):
        id = self.gw.create().id
        for call in (lambda: self.gw.network(id), lambda: self.gw.set_network(id, {"mode": "no-network"}), lambda: self.gw.denied(id)):
            with self.assertRaisesRegex(actiond.Refused, "cannot keep network policies"):
                call()
        with self.assertRaisesRegex(actiond.Refused, "/network/allow/0: rule"):
            self.gw.create(network={"mode": "allowlist", "allow": ["a b"]})
        with self.assertRaisesRegex(actiond.Refused, "cannot honour a network policy"):
            self.gw.create(network={"mode": "allowlist", "allow": ["a.example"]})

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


@both
class Networks(Both):
    def test_what_is_sent(self):
        state = {"mode": "public", "generation": 4, "egress": "ok"}
        server = Scripted(self, answering(*[response(json.dumps(state).encode(), "200 OK", "Connection: close")] * 3, response(b'{"denied": [{"number": 8}]}')))
        gateway = self.client(server.url, "k" * 32)
        self.assertEqual(gateway.network("a b"), state)
        self.assertEqual(gateway.set_network("box", {"mode": "public"}), state)
        self.assertEqual(gateway.change_network("box", generation=3, mode="public", allow_add=["a.example"]), state)
        self.assertEqual(gateway.denied("box", after=7, wait=30), [{"number": 8}])
        lines = [head.split(b"\r\n")[0].decode() for head in server.requests]
        self.assertEqual(lines, [
            "GET /v1/sandboxes/a%20b/network HTTP/1.1", "PUT /v1/sandboxes/box/network HTTP/1.1",
            "PATCH /v1/sandboxes/box/network HTTP/1.1", "GET /v1/sandboxes/box/network/denied?after=7&wait=30 HTTP/1.1",
        ])
        self.assertEqual([b'If-Match: "3"\r\n' in head for head in server.requests], [False, False, True, False])

    def test_a_conditional_change_is_sent_once(self):
        server = Scripted(self, answering(b"", response(b'{"mode": "public"}', "200 OK", "Connection: close"), b""))
        gateway = self.client(server.url)
        self.assertEqual(gateway.set_network("box", {"mode": "public"}), {"mode": "public"})
        with self.assertRaises(actiond.Cut):
            gateway.set_network("box", {"mode": "public"}, generation=1)
        self.assertEqual(len(server.requests), 3)

    def test_refusals(self):
        for status, kind in ((409, actiond.Refused), (412, actiond.Refused), (422, actiond.Refused), (503, actiond.Busy)):
            answer = response(b'{"detail": "no", "errors": [], "applied": false}', f"{status} x")
            gateway = self.client(Scripted(self, answering(answer)).url)
            with self.assertRaises(kind) as raised:
                gateway.change_network("box", mode="public")
            self.assertEqual((raised.exception.status, raised.exception.detail), (status, "no"))


class Children(unittest.TestCase):
    def test_a_gateway_that_does_not_start(self):
        program("runtimectl")
        with self.assertRaisesRegex(actiond.ActiondError, "no-such-flag"):
            actiond.docker("--no-such-flag")


if __name__ == "__main__":
    unittest.main()
