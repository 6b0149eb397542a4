"""Connections that are cut at each part of a request and of an answer: no action runs twice, and none is lost silently."""

import asyncio
import collections
import concurrent.futures
import io
import itertools
import os
import pathlib
import socket
import struct
import tempfile
import threading
import unittest
import unittest.mock

from .support import Blocking, Both, Loop, Server, both, program

import actiond

AT_ONCE = 12
PLACES = 22  # of cuts in each direction of each kind of request


class Proxy:
    """Passes bytes on, and cuts its first connections: each of `cuts` is a direction and a number of bytes."""

    def __init__(self, proxies, host, cuts=()):
        self._proxies, self._host, self._left = proxies, host, list(cuts)
        self.cut = 0
        self.passed = collections.Counter()  # of all connections
        self._server = proxies.run(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self):
        self._proxies.run(self._close())

    async def _close(self):
        self._server.close()

    async def _accept(self, reader, writer):
        direction, most = self._left.pop(0) if self._left else ("", 0)
        try:
            up, down = await (asyncio.open_unix_connection(self._host) if isinstance(self._host, str) else asyncio.open_connection(*self._host))
        except OSError:
            writer.transport.abort()
            return

        def sever():
            self.cut += 1
            for each in (writer, down):
                if most % 2:  # a reset in the place of an end
                    each.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.transport.abort()

        async def copy(name, source, target):
            left = most if name == direction else -1
            try:
                while left:
                    data = await source.read(left if left > 0 else 65536)
                    if not data:
                        break
                    self.passed[name] += len(data)
                    left -= len(data) if left > 0 else 0
                    target.write(data)
                    await target.drain()
                else:
                    sever()
                    return
            except OSError:
                pass
            target.close()

        await asyncio.gather(copy("up", reader, down), copy("down", up, writer))
        for each in (writer, down):
            each.close()


def places(size, shift):
    """Return the ends of a message of so many bytes, and places between them."""
    between = range(4 + shift, size - 4, max(1, (size - 8) // (PLACES - 8)))
    return sorted({n for n in (0, 1, 2, 3, *between, size - 4, size - 3, size - 2, size - 1) if 0 <= n < size})


def setUpModule():
    global server, proxies
    server = Server("--max-sessions", "64")
    unittest.addModuleCleanup(server.stop)
    proxies = Loop()
    unittest.addModuleCleanup(proxies.stop)


@both
class Cuts(Both):
    def setUp(self):
        super().setUp()
        self.shift = 1 if self.kind == "async" else 0
        directory = tempfile.mkdtemp(dir=server.work)
        self.file = os.path.join(directory, "lines")
        self.directory = directory
        self.numbers = itertools.count()
        self.workers = itertools.count()
        self.of_thread = threading.local()

    def sweep(self, host, act, check, at_once=AT_ONCE, fewer=1):
        """Do something through cuts at all places, and check its ids. Return the number of cuts."""
        whole = Proxy(proxies, host)
        ids = [self.one(whole, act)]
        plans = [[(direction, n)] * (2 if n % 3 == 0 else 1) for direction in ("up", "down")
                 for n in places(whole.passed[direction], self.shift)[::fewer]]
        made = [Proxy(proxies, host, plan) for plan in plans]
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            ids += pool.map(lambda proxy: self.one(proxy, act), made)
        self.assertEqual(len(set(ids)), len(plans) + 1)
        check(ids)
        cuts = sum(proxy.cut for proxy in made)
        self.assertGreater(cuts, len(plans) // 2)  # lengths differ a little: a place may be behind the end
        return cuts

    def one(self, proxy, act):
        """Do something through a proxy. What has at most two cuts is done: neither Cut nor Unknown may be raised."""
        id = f"{self.kind}-{act.__name__}-{next(self.numbers)}"
        client = self.through(proxy)
        try:
            act(client, id)
        finally:
            client.close()
            proxy.close()
        return id

    def through(self, proxy):
        plain, other = (actiond.Sandbox, actiond.AsyncSandbox)
        return plain(proxy.url, server.key) if self.kind == "sync" else Blocking(other(proxy.url, server.key), self.loop)

    def session(self):
        if not hasattr(self.of_thread, "name"):
            self.of_thread.name = f"{self.kind}-{next(self.workers)}"
        return self.of_thread.name

    def once(self, ids):
        """Check that a file has one line for each id."""
        with open(self.file) as file:
            lines = collections.Counter(line.strip() for line in file)
        self.assertEqual((lines - collections.Counter(ids), collections.Counter(ids) - lines), ({}, {}), "more and fewer lines")

    def test_each_action_once(self):
        def run(sandbox, id):
            result = sandbox.run(f"echo {id} >>{self.file}; echo ran {id}", session=self.session(), action_id=id)
            self.assertEqual((result.output.strip(), result.exit_code), (f"ran {id}", 0))

        def execute(sandbox, id):
            result = sandbox.exec(f"echo {id} >>{self.file}; echo ran {id}; exit 3", action_id=id)
            self.assertEqual((result.stdout, result.returncode), (f"ran {id}\n", 3))

        def stream(sandbox, id):
            got = []
            command = f"echo {id} >>{self.file}; for i in 1 2 3; do echo $i; sleep 0.02; done; echo {id} >&2"
            result = sandbox.exec(command, on_output=got.append, action_id=id)
            self.assertEqual(b"".join(o.data for o in got if o.stream == "stdout"), b"1\n2\n3\n")
            self.assertEqual(b"".join(o.data for o in got if o.stream == "stderr").decode(), f"{id}\n")
            self.assertEqual((result.stdout, result.returncode), ("1\n2\n3\n", 0))

        def stdin(sandbox, id):
            command = f"input=$(cat; echo .); echo \"${{input%.}}\" >>{self.file}; echo \"$input\""
            result = sandbox.exec(command, input=io.BytesIO(id.encode()), action_id=id)
            self.assertEqual((result.stdout, result.returncode), (f"{id}.\n", 0))

        def call(sandbox, id):
            result = sandbox.call("execute_bash", {"command": f"echo {id} >>{self.file}; echo ran {id}"}, session=self.session(), action_id=id)
            self.assertIn(f"ran {id}", result.text)
            self.assertFalse(result.is_error)

        def write(sandbox, id):  # a second time, it would not be new
            sandbox.write(os.path.join(self.directory, id), id, if_new=True, action_id=id)

        def written(ids):
            self.assertEqual({p.name: p.read_text() for p in pathlib.Path(self.directory).iterdir() if p.name != "lines"}, {id: id for id in ids})

        cuts, so_far = 0, []
        for act in (run, execute, stream, stdin, call):
            def check(ids):
                so_far.extend(ids)
                self.once(so_far)
            cuts += self.sweep(("127.0.0.1", server.port), act, check)
        cuts += self.sweep(("127.0.0.1", server.port), write, written)
        self.assertGreaterEqual(cuts, 250)  # each client its own

    def test_each_sandbox_once(self):
        program("runtimectl")
        state = tempfile.TemporaryDirectory()
        self.addCleanup(state.cleanup)
        gateway = actiond.docker("--on", "local", "--state-dir", state.name)
        self.addCleanup(gateway.close)
        made = {}

        def create(client, id):
            made[id] = client.create(key=id, labels={"id": id}).id

        def through(proxy):
            return (actiond.Client(proxy.url, gateway._child.key) if self.kind == "sync"
                    else Blocking(actiond.AsyncClient(proxy.url, gateway._child.key), self.loop))

        def check(ids):
            found = gateway.list(limit=1000).sandboxes
            self.assertEqual({s.labels["id"]: s.id for s in found}, made)
            self.assertEqual((sorted(made), len(found)), (sorted(ids), len(ids)))

        self.through = through
        self.sweep(gateway._pool.address.socket, create, check, at_once=4, fewer=4)

    def test_a_connection_that_is_always_cut(self):
        """The action runs at most once, and the client says that it does not know."""
        module = actiond._io_sync if self.kind == "sync" else actiond._io_async
        slow = module.sleep
        with unittest.mock.patch.object(module, "sleep", lambda seconds: slow(seconds / 20)):
            self.always_cut()

    def always_cut(self):
        ids, outcome = [], {}
        for direction, n in (("up", 150), ("up", 300), ("down", 10), ("down", 150)):
            proxy = Proxy(proxies, ("127.0.0.1", server.port), [(direction, n)] * 1000)
            id = f"{self.kind}-always-{direction}-{n}"

            def go(proxy=proxy, id=id):
                client = self.through(proxy)
                try:
                    client.exec(f"echo {id} >>{self.file}", action_id=id)
                    return None
                except (actiond.Cut, actiond.Unknown) as e:
                    return e.action_id
                finally:
                    client.close()
                    proxy.close()
            ids.append((id, threading.Thread(target=lambda go=go, id=id: outcome.__setitem__(id, go()))))
        for _, thread in ids:
            thread.start()
        for _, thread in ids:
            thread.join()
        self.assertEqual(outcome, {id: id for id, _ in ids})
        with open(self.file) as file:
            self.assertTrue(all(n == 1 for n in collections.Counter(file).values()))


if __name__ == "__main__":
    unittest.main()
