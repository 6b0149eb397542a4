"""Servers that are hostile, broken or slow."""

import logging
import pickle
import socket
import time
import tracemalloc
import unittest
from unittest import mock

from .support import Both, Scripted, answering, both, response

import actiond
from actiond import _http_async, _http_sync

FAST = {"SILENCE": 0.3, "TRIES": 3}


def quick(case: unittest.TestCase) -> None:
    """Shorten what waits, in both clients."""
    for module in (_http_async, _http_sync):
        for name, value in FAST.items():
            patch = mock.patch.object(module, name, value)
            patch.start()
            case.addCleanup(patch.stop)


@both
class Hostile(Both):
    def ask(self, script, method="server_info", *args, **more):
        server = Scripted(self, script)
        return getattr(self.sandbox(server.url, "secret-key"), method)(*args, **more)

    def malformed(self, answer: bytes) -> None:
        with self.assertRaises(actiond.Malformed):
            self.ask(answering(answer))

    def test_answers(self):
        for answer in (
            response(b'{"a": 1}'),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{\"a\r\n5;x=y\r\n\": 1}\r\n0\r\nTrailer: x\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + response(b'{"a": 1}'),
            b"HTTP/1.0 200\nContent-Length: 8\n\n{\"a\": 1}",
            response(b'{"a": 1}', "200 OK", "Content-Length: 8"),
        ):
            with self.subTest(answer=answer):
                self.assertEqual(self.ask(answering(answer)), {"a": 1})

    def test_malformed(self):
        for answer in (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n{}",  # without a length, a cut could not be told from the end
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            response(b"{}", "200 OK", "Content-Length: 3"),
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}xx0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 300,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"T: x\r\n" * 300,
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300,
            b"HTTP/1.1 200 OK\r\n" + b"A: " + b"b" * 70_000 + b"\r\n",
            b"HTTP/1.1 200 OK\r\n" + (b"A: " + b"b" * 10_000 + b"\r\n") * 7,
            b"HTTP/1.1 200 OK\r\n folded\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n" * 1001,
            response(b"[1]"),
            response(b"{\"a\": NaN}"),
            response(b"{\"a\": " + b"[" * 100_000 + b"]" * 100_000 + b"}"),
            response(b"{\"a\": " + b"1" * 10_000_000 + b"}"),
            response(b"\xff{}"),
        ):
            with self.subTest(answer=answer[:80]):
                self.malformed(answer)

    def test_the_size_of_a_chunk_comes_in_time(self):
        quick(self)

        def dripping(connection, head):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                connection.sendall(b"0")
                time.sleep(0.01)
        with self.assertRaises(actiond.Cut):
            self.ask(dripping)

    def test_small_chunks_take_little(self):
        class Wire:
            def some(self, most): return bytes(bytearray(b"ab"))
            def line(self, most, due=0.0): return b"2" if asked() else b""
        lines = iter(range(80_000))
        asked = lambda: next(lines) % 2 == 0  # noqa: E731: a size, and then the end of a chunk
        answer = _http_sync.Answer(Wire(), None, 200, {"transfer-encoding": "chunked"}, False)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        with self.assertRaises(actiond.TooLarge):
            answer.whole(60_000)
        self.assertLess(tracemalloc.get_traced_memory()[1], 500_000)

    def test_a_large_answer_is_not_read(self):
        def endless(connection, head):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        with self.assertRaises(actiond.TooLarge):
            self.ask(endless)
        with self.assertRaises(actiond.TooLarge):
            self.ask(endless, "read", "f", max_bytes=1000)
        with self.assertRaises(actiond.TooLarge):
            self.ask(endless, "download", "f", "/nonexistent/f", max_bytes=1 << 20)

        def line(connection, head):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                connection.sendall(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
        with self.assertRaises(actiond.Malformed):
            self.ask(line, "run", "true", on_output=print)

    def test_wrong_types(self):
        for body in (b'{"extras": 5, "observation": "exec"}', b'{"observation": "exec", "extras": {"exit_code": "0"}}',
                     b'{"observation": "exec", "extras": {"stdout_base64": "!", "stdout_total": 1}}',
                     b'{"observation": "exec", "extras": {"exit_code": true}}', b'{"observation": "exec", "content": []}'):
            with self.subTest(body=body), self.assertRaises(actiond.Malformed):
                self.ask(answering(response(body)), "exec", "true")

    def test_redirects_are_refused(self):
        other = Scripted(self, answering(response()))
        for status in ("301 Moved", "302 Found", "307 Temporary Redirect"):
            with self.assertRaises(actiond.Refused) as caught:
                self.ask(answering(response(b"", status, f"Location: {other.url}/server_info")))
            self.assertIn(caught.exception.status, (301, 302, 307))
        self.assertEqual(other.requests, [])

    def test_an_early_refusal_is_read(self):
        def refuse(connection, head):
            connection.sendall(response(b'{"detail": "it is too large"}', "413 Too Large", "Connection: close"))
            time.sleep(0.05)  # the client is still sending
            return False
        with self.assertRaises(actiond.TooLarge) as caught:
            self.ask(refuse, "write", "f", b"x" * (20 << 20))
        self.assertEqual(caught.exception.detail, "it is too large")

    def test_silence_is_a_cut(self):
        quick(self)
        silent = Scripted(self, lambda connection, head: None)
        with self.assertRaises(actiond.Cut) as caught:
            self.sandbox(silent.url).run("true", action_id="one")
        self.assertEqual(caught.exception.action_id, "one")
        self.assertEqual([b"Idempotency-Key: one" in r for r in silent.requests], [True] * 3)

    def test_trickling_bytes_end(self):
        quick(self)

        def trickle(connection, head):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.01)
        with self.assertRaises(actiond.Cut):
            self.ask(trickle)

    def test_a_short_body_is_a_cut(self):
        quick(self)
        for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", b""):
            with self.subTest(answer=answer), self.assertRaises(actiond.Cut):
                self.ask(answering(answer))
        self.assertEqual(self.ask(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", response())), {})

    def test_which_statuses_are_asked_again(self):
        quick(self)
        done = response(b'{"observation": "run", "content": "ok", "extras": {}, "outcome": "succeeded"}')
        for status, detail in (("408 x", "x"), ("499 x", "x"), ("502 x", "x"), ("504 x", "x"), ("400 x", "The body ended too early")):
            with self.subTest(status=status):
                refusal = response(b'{"detail": "%s", "errors": []}' % detail.encode(), status)
                self.assertEqual(self.ask(answering(refusal, done), "run", "true").output, "ok")
        for status, kind in (("429 x", actiond.Busy), ("503 x", actiond.Busy), ("403 x", actiond.Forbidden), ("404 x", actiond.NotFound),
                             ("410 x", actiond.Gone), ("422 x", actiond.Refused), ("400 x", actiond.Refused)):
            with self.subTest(status=status):
                server = Scripted(self, answering(response(b'{"detail": "no"}', status)))
                with self.assertRaises(kind):
                    self.sandbox(server.url).run("true")
                self.assertEqual(len(server.requests), 1)
        busy = response(b'{"detail": "busy"}', "503 x")
        self.assertEqual(self.ask(answering(response(b"", "502 x"), busy, done), "run", "true").output, "ok")

    def test_nothing_listens(self):
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.close()
        for url in (f"http://127.0.0.1:{port}", "unix:///nonexistent/socket"):
            with self.assertRaises(actiond.Unreachable):
                self.sandbox(url).run("true")

    def test_connections_are_kept(self):
        server = Scripted(self, lambda connection, head: connection.sendall(response()))
        sandbox = self.sandbox(server.url)
        for _ in range(5):
            sandbox.server_info()
        self.assertEqual((len(server.requests), len(server._open)), (5, 1))

    def test_a_closed_connection_is_replaced(self):
        server = Scripted(self, answering(response()))
        sandbox = self.sandbox(server.url)
        for _ in range(3):
            self.assertEqual(sandbox.server_info(), {})
            time.sleep(0.02)

    def test_the_key_is_in_no_text(self):
        echo = response(b'{"detail": "wrong: secret-key", "errors": ["secret-key"]}', "403 x")
        server = Scripted(self, answering(response(b"secret-key", "502 x"), echo))
        sandbox = self.sandbox(server.url, "secret-key")
        with self.assertLogs("actiond", logging.INFO) as logs, self.assertRaises(actiond.Forbidden) as caught:
            sandbox.server_info()
        self.assertIn(b"X-Session-API-Key: secret-key\r\n", server.requests[0])
        self.assertEqual(len(logs.output), 1)
        for text in (repr(sandbox), str(caught.exception), repr(caught.exception), repr(sandbox._http), *logs.output):
            self.assertNotIn("secret-key", text)
        for key in ("secret\r\nX: y", "secret\n", "s\u00e9cret"):
            with self.assertRaises(ValueError) as refused:
                self.sandbox(server.url, key)
            self.assertNotIn("cret", str(refused.exception))

    def test_headers_and_paths_cannot_be_injected(self):
        server = Scripted(self, answering(response(b"text")))
        sandbox = self.sandbox(server.url)
        sandbox.read("/a b\r\nX: y?&path=c#\u00e9\udc80")
        self.assertEqual(server.requests[0].split(b"\r\n")[0], b"GET /v1/files?path=%2Fa%20b%0D%0AX%3A%20y%3F%26path%3Dc%23%C3%A9%80 HTTP/1.1")
        for call in (lambda: sandbox.run("x", action_id="a\r\nX: y"), lambda: sandbox.run("x", action_id=".."), lambda: sandbox.run("x", action_id=""),
                     lambda: sandbox.write("f", b"", if_sha256='a"\r\nX: y')):
            with self.assertRaises(ValueError):
                call()


class Plain(unittest.TestCase):
    def test_urls(self):
        for url in ("", "ftp://x", "http://", "unix://relative", "http://user:secret@host", "http://h/?q=1", "http://h:99999", "http://h/\r\nX:",
                    "http://[::1"):
            with self.subTest(url=url), self.assertRaises(ValueError) as caught:
                actiond.Sandbox(url)
            self.assertNotIn("secret", str(caught.exception))
        for url, text in (("http://h", "http://h"), ("https://h:444/p/", "https://h:444/p"), ("http://[::1]:80/", "http://[::1]"), ("unix:///s", "unix:///s")):
            self.assertEqual(repr(actiond.Sandbox(url)), f"<Sandbox {text}>")

    def test_exceptions(self):
        for error, kinds in ((actiond.NotFound(404, "d", "c"), (FileNotFoundError, actiond.Refused)), (actiond.Forbidden(403, "d", "c"), (PermissionError,)),
                             (actiond.IsDirectory(400, "d", "c"), (IsADirectoryError,)), (actiond.NotDirectory(400, "d", "c"), (NotADirectoryError,)),
                             (actiond.Cut("k"), (ConnectionError,)), (actiond.Unknown("k", "out"), (actiond.ActiondError,)),
                             (actiond.NotRun("busy", "d"), ()), (actiond.Failed("d", "c"), ()), (actiond.Unreachable("x"), (ConnectionError,))):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), vars(copy)), (type(error), str(error), vars(error)))
            for kind in kinds:
                self.assertIsInstance(error, kind)
        self.assertEqual(actiond.NotFound(404, "x").errno, 2)
        self.assertEqual(str(actiond.Refused(400, "a\x1b[31m\nb")), "400: a\\x1b[31m\\nb")
        self.assertLess(len(str(actiond.Failed("x" * 100_000))), 5000)


if __name__ == "__main__":
    unittest.main()
