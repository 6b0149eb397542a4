"""Archives that were forged, and those that were not."""

import io
import os
import pickle
import stat
import tarfile
import tempfile
import tracemalloc
import unittest
from unittest import mock

from . import support  # noqa: F401

from actiond import ActiondError, Malformed, _archive


def member(name, kind=tarfile.REGTYPE, target="", data=b"", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.mode = kind, target, len(data), mode
    return info, data


def archive(*members, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    out.seek(0)
    return out


def header(kind, size):
    block = bytearray(512)
    block[0:1], block[124:136], block[156:157] = b"x", b"%011o\0" % size, kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


class Archive(unittest.TestCase):
    def setUp(self):
        home = tempfile.TemporaryDirectory()
        self.addCleanup(home.cleanup)
        self.home, self.target = home.name, os.path.join(home.name, "target")

    def tree(self):
        return sorted(os.path.relpath(os.path.join(d, n), self.home) for d, ds, fs in os.walk(self.home) for n in ds + fs)

    def test_whole(self):
        long = "n" * 200
        _archive.unpack(archive(member("r", tarfile.DIRTYPE, mode=0o755), member("r/a/b", data=b"1" * 1000, mode=0o4755), member("r/\u00e9/" + long, data=b"2"),
                                member("r/link", tarfile.SYMTYPE, "a/b"), member("r/a/up", tarfile.SYMTYPE, "../a/b"),
                                member("r/hard", tarfile.LNKTYPE, "r/a/b"), member("r/empty", tarfile.DIRTYPE, mode=0o700)), self.target)
        names = ["a", "a/b", "a/up", "\u00e9", "\u00e9/" + long, "link", "hard", "empty"]
        self.assertEqual(self.tree(), sorted(["target", *("target/" + n for n in names)]))
        self.assertEqual(stat.S_IMODE(os.stat(self.target + "/a/b").st_mode), 0o755)  # without the set-uid bit
        with open(self.target + "/link", "rb") as file:
            self.assertEqual(file.read(), b"1" * 1000)

    def test_nothing_leaves_the_target(self):
        for members in (
            [member("r/../../out", data=b"x")], [member("/out", data=b"x")], [member("r/a/../../../out", data=b"x")],
            [member("r/l", tarfile.SYMTYPE, ".."), member("r/l/out", data=b"x")],
            [member("r/l", tarfile.SYMTYPE, self.home), member("r/l/out", data=b"x")],
            [member("r/d/x", tarfile.SYMTYPE, ".."), member("r/y", tarfile.SYMTYPE, "d/x/../.."), member("r/y/out", data=b"x")],
            [member("r/h", tarfile.LNKTYPE, "/etc/passwd")], [member("r/h", tarfile.LNKTYPE, "r/../../out")],
            [member("r/fifo", tarfile.FIFOTYPE), member("r/dev", tarfile.CHRTYPE)], [member("r", data=b"x")], [member("r/..", tarfile.DIRTYPE)],
        ):
            with self.subTest(members=[m[0].name for m in members]):
                for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
                    try:
                        _archive.unpack(archive(*members, form=form), self.target)
                    except ActiondError:
                        pass
                    self.assertEqual([n for n in self.tree() if not n.startswith("target")], [])
                    for name in self.tree():
                        path = os.path.join(self.home, name)
                        self.assertTrue(os.path.realpath(path).startswith(os.path.realpath(self.target)), name)
                        self.assertFalse(stat.S_ISFIFO(os.lstat(path).st_mode))

    def test_no_link_of_the_target_is_followed(self):
        os.makedirs(self.target)
        os.makedirs(self.home + "/mine")
        os.symlink("../mine", self.target + "/dir")
        os.symlink("../mine/file", self.target + "/file")
        with self.assertRaises(ActiondError):
            _archive.unpack(archive(member("r/dir/out", data=b"x")), self.target)
        _archive.unpack(archive(member("r/file", data=b"x")), self.target)
        self.assertEqual(os.listdir(self.home + "/mine"), [])
        self.assertFalse(os.path.islink(self.target + "/file"))

    def test_what_is_left_out_is_named(self):
        def noted(**records):
            data = b"".join(b"%d %s\n" % (len(r) + 4, r) for r in (f"ACTIOND.{k}={v}".encode() for k, v in records.items()))
            return header(b"g", len(data)) + data + bytes(-len(data) % 512)
        whole = archive(member("r/a", data=b"1"), member("r/abs", tarfile.SYMTYPE, "/etc"), member("r/up", tarfile.SYMTYPE, ".."),
                        member("r/fifo", tarfile.FIFOTYPE), member("r/h", tarfile.LNKTYPE, "r/none"), member("r/../x", data=b"x")).getvalue()
        left = _archive.unpack(io.BytesIO(whole.rstrip(b"\0") + bytes(-len(whole.rstrip(b"\0")) % 512) + noted(leftout="r/s is a socket") + bytes(1024)), self.target)
        self.assertEqual([text.split()[0] for text in left], ["r/abs", "r/up", "r/fifo", "r/h", "r/../x", "r/s"])
        with self.assertRaisesRegex(PermissionError, "r/secret may not be read") as raised:
            _archive.unpack(io.BytesIO(noted(leftout="r/secret may not be read", unreadable="1") + bytes(1024)), self.target)
        self.assertEqual(pickle.loads(pickle.dumps(raised.exception)).left_out, ["r/secret may not be read"])
        self.assertEqual(self.tree(), ["target", "target/a"])

    def test_damaged(self):
        good = archive(member("r/a", data=b"1" * 2000)).getvalue()
        deep = archive(member("r/" + "d/" * 2048 + "f", data=b"x")).getvalue()
        for data in (deep, b"", good[:700], good[:1500], b"x" * 512, good[:2560], header(b"x", 1 << 30), header(b"L", 8 << 30 - 2), header(b"0", 100),
                     header(b"x", 10) + b"99 path=a\n" + bytes(502) + bytes(1024), header(b"x", 12) + b"12 size=-99\n" + bytes(500) + header(b"0", 0) + bytes(1024)):
            with self.subTest(data=data[:20], size=len(data)), self.assertRaises(Malformed):
                _archive.unpack(io.BytesIO(data), self.target)
        files = [n for n in self.tree() if os.path.isfile(os.path.join(self.home, n))]
        self.assertEqual(files, ["target/a"])  # of the archive that lacks its end alone, and whole
        self.assertEqual(os.path.getsize(self.target + "/a"), 2000)

    def test_headers_take_little(self):
        def extended(records):
            return header(b"x", len(records)) + records + bytes(-len(records) % 512)
        flood = b"".join(extended(b"1000013 k%d=%s\n" % (i, b"v" * 1_000_000)) for i in range(10, 30))
        many = extended(b"5 a=\n" * 100_000 + b"12 path=r/n\n")
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        with self.assertRaises(Malformed):
            list(_archive.entries(io.BytesIO(flood)))
        self.assertEqual([e.name for e in _archive.entries(io.BytesIO(many + header(b"5", 0) + bytes(1024)))], ["r/n"])
        self.assertLess(tracemalloc.get_traced_memory()[1], 10 << 20)
        with mock.patch.object(_archive, "MAX_ALL_NAMES", 20), self.assertRaises(Malformed):
            list(_archive.entries(archive(*[member("r/" + "n" * 8)] * 3)))

    def test_pack(self):
        source = self.home + "/source"
        os.makedirs(source + "/d")
        os.symlink("d", source + "/l")
        os.mkfifo(source + "/fifo")
        with open(source + "/d/f", "wb") as file:
            file.write(b"data")
        with _archive.pack(source) as spool, tarfile.open(fileobj=spool) as tar:
            self.assertEqual([(m.name, m.type) for m in tar], [("d", tarfile.DIRTYPE), ("d/f", tarfile.REGTYPE), ("l", tarfile.SYMTYPE)])


if __name__ == "__main__":
    unittest.main()
