"""The client against the gateway of this repository, as docker() starts it, with processes of this machine as sandboxes."""

import json
import os
import pickle
import signal
import tempfile
import unittest
import unittest.mock

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
        with self.assertRaisesRegex(actiond.SandboxEnded, "removed"):
            self.gw.get(sandbox.id)

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

    def test_sizes(self):
        sent = []

        async def tell(http, method, path, body=None, **more):
            sent.append(body["memory"])
            return {"id": "abc1"}

        kind = actiond._async.Http if self.kind == "async" else actiond._sync.Http
        with unittest.mock.patch.object(kind, "tell", tell if self.kind == "async" else lambda *a, **m: sent.append(a[3]["memory"]) or {"id": "abc1"}):
            for memory in (1 << 30, "1g", "1024m", "1.5G", "512", "64MiB", "2kb", "7b"):
                self.gw.create(memory=memory)
        self.assertEqual(sent, [1 << 30, 1 << 30, 1 << 30, 3 << 29, 512, 64 << 20, 2048, 7])
        for memory in ("2 gallons", "-1", "g"):
            with self.assertRaisesRegex(ValueError, "2g"):
                self.gw.create(memory=memory)

    def test_gpus(self):
        for asked, said in ((1, "gives out no GPUs"), ("all", "gives out no GPUs"), ("some", "must be all, a number")):
            with self.assertRaisesRegex(actiond.Refused, said):
                self.gw.create(gpus=asked)
        self.assertEqual(self.gw.create(gpus=0).info.gpus, "")
        self.assertEqual(actiond.SandboxInfo.of({"id": "a", "gpus": "device=GPU-a"}).gpus, "device=GPU-a")

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

    def test_an_end_has_a_name(self):
        gone, killed, timed = self.gw.create(), self.gw.create(), self.gw.create(ttl_seconds=1)
        self.gw.delete(gone.id)
        pid = killed.exec("echo $PPID").stdout.strip()
        os.kill(int(pid), signal.SIGKILL)
        for sandbox, call in ((gone, lambda sb: sb.exec("true")), (gone, lambda sb: sb.read("file")), (gone, lambda sb: sb.run("true")),
                              (killed, lambda sb: sb.exec("true")), (timed, lambda sb: sb.exec("sleep 1000"))):
            with self.assertRaises(actiond.SandboxEnded) as raised:
                call(sandbox)
            self.assertIsInstance(raised.exception, actiond.Gone)
            self.assertIn(sandbox.id, str(raised.exception))
        self.gw.delete(gone.id)
        alive = self.gw.create()
        with self.assertRaises(FileNotFoundError):
            alive.read("no-such-file")
        with self.assertRaisesRegex(actiond.NotFound, "no action"):
            alive.action("never-was")
        child = self.gw.inner._child if self.kind == "async" else self.gw._child
        child._process.kill()
        with self.assertRaisesRegex(actiond.SandboxEnded, "gateway .* signal 9") as raised:
            alive.exec("true")
        self.assertEqual(raised.exception.reason, "server")

    def test_a_wrong_key(self):
        inner = self.gw.inner if self.kind == "async" else self.gw
        stranger = self.client(f"unix://{inner._pool.address.socket}", "wrong" * 10)
        with self.assertRaises(PermissionError):
            stranger.create()


@both
class Ends(Both):
    made = response(b'{"id": "abc1", "state": "ready", "session_api_key": "kkk"}', "201 Created", "Connection: close")

    def answers(self, *later):
        """Return what the requests of a sandbox raise that was created and whose gateway then answers so, and these requests."""
        server = Scripted(self, answering(self.made, *(a.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) for a in later)))
        sandbox = self.client(server.url, "g" * 32).create()
        raised = []
        for call in (lambda: sandbox.exec("true"), lambda: sandbox.output("id")):
            with self.assertRaises(actiond.ActiondError) as caught:
                call()
            raised.append(caught.exception)
        return raised, [head.split(b"\r\n")[0].decode() for head in server.requests[1:]]

    def test_it_is_told_at_once(self):
        for status, body, reason, text in (
                ("410 Gone", {"detail": "Sandbox abc1 ended", "code": "ended", "reason": "memory"}, "memory", "Sandbox abc1 ended (memory)"),
                ("410 Gone", {"detail": "", "code": "ended", "reason": "a\x1b[0m"}, "a\x1b[0m", r"the sandbox ended (a\x1b[0m)"),
                ("503 x", {"detail": "Sandbox abc1 is stopped; start it", "code": "stopped"}, "stopped", "Sandbox abc1 is stopped; start it")):
            raised, requests = self.answers(response(json.dumps(body).encode(), status))
            self.assertEqual(len(requests), 2)
            for error in (*raised, pickle.loads(pickle.dumps(raised[0]))):
                self.assertEqual((type(error), error.reason, str(error)), (actiond.SandboxEnded, reason, text))

    def test_a_key_that_nobody_can_check_any_more(self):
        refusal = response(b'{"detail": "Invalid API Key"}', "403 Forbidden")
        coded = response(b'{"detail": "Invalid API Key", "code": "forbidden"}', "403 Forbidden")
        self.assertEqual([type(e) for e in self.answers(coded, response(b'{"code": "not_found"}', "404 Not Found"))[0]], [actiond.SandboxEnded] * 2)
        raised, requests = self.answers(refusal, response(b'{"detail": "no such sandbox"}', "404 Not Found"))
        self.assertEqual(requests, ["POST /sandboxes/abc1/v1/actions HTTP/1.1", "GET /v1/sandboxes/abc1 HTTP/1.1"] +
                         ["GET /sandboxes/abc1/v1/actions/id/output?offset=0&limit=4194304 HTTP/1.1", "GET /v1/sandboxes/abc1 HTTP/1.1"])
        self.assertEqual([str(e) for e in raised], ["the sandbox abc1 ended or was removed"] * 2)
        alive = response(b'{"id": "abc1", "state": "ready"}')
        raised, _ = self.answers(refusal, alive, refusal, alive)
        self.assertEqual([type(e) for e in raised], [actiond.Forbidden] * 2)

    def test_a_pause_and_an_older_record_are_no_ends(self):
        for status, body, kind in (("503 x", b'{"detail": "it is paused", "code": "paused"}', actiond.Busy),
                                   ("410 Gone", b'{"detail": "the record is not kept"}', actiond.Gone)):
            raised, _ = self.answers(response(body, status))
            self.assertEqual([type(e) for e in raised], [kind] * 2)

    def test_a_cut_says_the_last_answer(self):
        gateway = self.client(Scripted(self, answering(response(b'{"detail": "no answer"}', "502 x"))).url)
        with self.assertRaisesRegex(actiond.Cut, "at last: 502: no answer") as raised:
            gateway.set_network("box", {"mode": "public"}, generation=1)
        self.assertEqual(str(pickle.loads(pickle.dumps(raised.exception))), str(raised.exception))

    def test_a_sentence_is_said_once(self):
        body = {"detail": "query.since: must be a state", "errors": ["query.since: must be a state"]}
        raised, _ = self.answers(response(json.dumps(body).encode(), "422 x"))
        self.assertEqual(str(raised[0]), "422: query.since: must be a state")


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
