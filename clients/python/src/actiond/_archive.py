"""Directories as tar archives. An archive that was forged writes nothing outside of its target, and through no link."""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import stat
import tarfile
import tempfile
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._errors import ActiondError, Incomplete, Malformed

BLOCK = 512
MAX_ENTRIES = 1_000_000
MAX_NAMES = 1 << 20  # bytes of one extended header
MAX_NAME = 4096  # bytes of a path, as Linux has it
SMALL = 256 << 10  # bytes of a file that is read before its size is told: files of the kernel say 0, or too much
MAX_ALL_NAMES = 128 << 20  # bytes of the names and targets of all members, which unpack remembers


class Entry(NamedTuple):
    """A member of an archive: kind is "0" for a file, "1" for a second name, "2" for a link, "5" for a directory."""

    name: str
    kind: str
    mode: int
    size: int
    mtime: float
    target: str


class _Writer(tarfile.TarFile):
    def addfile(self, tarinfo: tarfile.TarInfo, fileobj: Any = None) -> None:
        if fileobj and tarinfo.size <= SMALL:
            data = fileobj.read()
            tarinfo.size, fileobj = len(data), io.BytesIO(data)
        super().addfile(tarinfo, fileobj)


def source(local: str) -> Tuple[BinaryIO, int, int]:
    """Open a file, and return it with its size and its mode. One without a size, such as a FIFO, is read to its end."""
    file: Any = open(local, "rb")
    try:
        status = os.fstat(file.fileno())
        if status.st_size > SMALL:
            return file, status.st_size, status.st_mode & 0o777
        with file:
            spool: Any = tempfile.SpooledTemporaryFile(1 << 20)
            shutil.copyfileobj(file, spool)
    except BaseException:
        file.close()
        raise
    size = spool.tell()
    spool.seek(0)
    return spool, size, status.st_mode & 0o777


def pack(directory: str) -> BinaryIO:
    """Return a temporary file with the contents of a directory: files, directories and links, with modes and times."""
    def plain(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        return member if member.isreg() or member.islnk() or member.isdir() or member.issym() else None

    spool: Any = tempfile.TemporaryFile()
    with _Writer.open(fileobj=spool, mode="w", format=tarfile.PAX_FORMAT, dereference=False) as archive:
        for name in sorted(os.listdir(directory)):
            archive.add(os.path.join(directory, name), name, filter=plain)
    spool.seek(0)
    return spool  # type: ignore[no-any-return]


def entries(archive: BinaryIO) -> Iterator[Entry]:
    """Yield the members of an archive; archive is at the first byte of a file's contents then.

    A member of the kind "g" is no file: its name says which one the sender left out, and its target is not empty for one
    that could not be read.
    """
    extended: Dict[str, bytes] = {}
    names = 0
    for _ in range(MAX_ENTRIES):
        header = archive.read(BLOCK)
        if header == b"\0" * BLOCK:
            return
        if len(header) < BLOCK:
            raise Malformed("the archive ends too early: not all of the directory was sent")
        if _number(header[148:156]) != sum(header) - sum(header[148:156]) + 8 * 32:
            raise Malformed("the archive is damaged")
        kind, size = chr(header[156]), _number(header[124:136])
        if kind in "xgLK":
            data = _contents(archive, size)
            if kind == "g":
                noted = _records(data)
                text = noted.get("ACTIOND.leftout", b"")
                names += len(text)
                if text and names <= MAX_ALL_NAMES:
                    yield Entry(text.decode("utf-8", "replace"), "g", 0, 0, 0, "unreadable" if "ACTIOND.unreadable" in noted else "")
                continue
            extended.update(_records(data) if kind == "x" else {"path": data.rstrip(b"\0")} if kind == "L"
                            else {"linkpath": data.rstrip(b"\0")} if kind == "K" else {})
            continue
        name, prefix = _text(header[:100]), _text(header[345:500]) if header[257:262] == b"ustar" else b""
        name = extended.get("path", prefix + b"/" + name if prefix else name)
        if not re.fullmatch(rb"[0-9]{1,15}", extended.get("size", b"0")):
            raise Malformed("the archive has an invalid size")
        size = int(extended.get("size", size))
        target = extended.get("linkpath", _text(header[157:257]))
        names += len(name) + len(target)
        if names > MAX_ALL_NAMES or max(len(name), len(target)) > MAX_NAME:
            raise Malformed("the names in the archive are too long")
        start = archive.tell()
        yield Entry(os.fsdecode(name), "0" if kind == "\0" else kind, _number(header[100:108]) & 0o777, size,
                    _number(header[136:148]), os.fsdecode(target))
        archive.seek(start + -(-size // BLOCK) * BLOCK if kind in "0\0" else start)
        extended = {}
    raise Malformed("the archive has too many members")


def unpack(archive: BinaryIO, target: str) -> List[str]:
    """Write the members of an archive, without the first element of their names, into a directory, which is made.

    Links that leave the directory, and what is neither file, directory nor link, are left out, and the result names them.
    Files and links in the way are replaced. Links are made last, so no file is written through one. Incomplete: the sender
    could not read all.
    """
    os.makedirs(target, exist_ok=True)
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    made: Dict[Tuple[str, ...], bool] = {}
    left_out: List[str] = []
    unreadable = False
    links: List[Tuple[Tuple[str, ...], str]] = []
    modes: List[Tuple[Tuple[str, ...], Entry]] = []
    try:
        for entry in entries(archive):
            if entry.kind == "g":
                left_out.append(entry.name)
                unreadable = unreadable or bool(entry.target)
                continue
            parts = tuple(p for p in entry.name.split("/") if p not in ("", "."))[0 if entry.name.startswith("./") else 1:]
            if ".." in parts or "\0" in entry.name or entry.name.startswith("/") or not parts:
                left_out += [f"{entry.name} is a path outside of the directory"] if entry.kind != "5" else []
            elif entry.kind == "0":
                _file(root, parts, archive, entry)
                made[parts] = True
            elif entry.kind == "5":
                os.close(_directory(root, parts))
                modes.append((parts, entry))
            elif entry.kind == "1":
                first = tuple(p for p in entry.target.split("/") if p not in ("", "."))[1:]
                if first in made:
                    _again(root, parts, first)
                else:
                    left_out.append(f"{entry.name} is a second name of {entry.target}, which is not in the archive")
            elif entry.kind == "2" and _stays(entry.target, len(parts) - 1):
                links.append((parts, entry.target))
            else:
                what = f"a link to {entry.target}, which may lead outside" if entry.kind == "2" else "neither file nor directory nor link"
                left_out.append(f"{entry.name} is {what}")
        for parts, where in links:
            _link(root, parts, where)
        for parts, entry in reversed(modes):
            fd = _directory(root, parts)
            os.fchmod(fd, entry.mode | stat.S_IRWXU)
            os.utime(fd, (entry.mtime, entry.mtime))
            os.close(fd)
    except OSError as e:
        raise ActiondError(f"unpacking into {target}: {e}") from e
    finally:
        os.close(root)
    if unreadable:
        raise Incomplete(left_out)
    return left_out


def _number(field: bytes) -> int:
    text = field.rstrip(b"\0 ").lstrip()
    if not re.fullmatch(rb"[0-7]*", text):
        raise Malformed("the archive has an invalid number")
    return int(text or b"0", 8)


def _text(field: bytes) -> bytes:
    return field.split(b"\0")[0]


def _contents(archive: BinaryIO, size: int) -> bytes:
    """Return the contents of an extended header."""
    if size > MAX_NAMES:
        raise Malformed("a header of the archive is too long")
    return archive.read(-(-size // BLOCK) * BLOCK)[:size]


def _records(data: bytes) -> Dict[str, bytes]:
    """Return the records of an extended header that are used: "LENGTH NAME=VALUE\\n" each, one after another."""
    records = {}
    begin = 0
    while begin < len(data):
        length, _, _ = data[begin:begin + 12].partition(b" ")
        end = begin + (int(length) if re.fullmatch(rb"[0-9]{1,9}", length) else 0)
        name, equals, value = data[begin + len(length) + 1:end].partition(b"=")
        if end > len(data) or not equals or not value.endswith(b"\n"):
            raise Malformed("the archive has an invalid header")
        if name in (b"path", b"linkpath", b"size", b"ACTIOND.leftout", b"ACTIOND.unreadable"):
            records[name.decode()] = value[:-1]
        begin = end
    return records


def _stays(target: str, depth: int) -> bool:
    """Report whether a link in a directory so deep below the target leads to a place below it, whatever links it passes."""
    parts = [p for p in target.split("/") if p not in ("", ".")]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return not target.startswith("/") and "\0" not in target and up <= depth and ".." not in parts[up:]


def _directory(root: int, parts: Tuple[str, ...]) -> int:
    """Open a directory below root, made where it is missing, through no link. The caller closes it."""
    fd = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, dir_fd=fd)
            except FileExistsError:
                pass
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def _file(root: int, parts: Tuple[str, ...], archive: BinaryIO, entry: Entry) -> None:
    """Write a file under another name, and give it its own at once."""
    parent = _directory(root, parts[:-1])
    name = f".actiond-{secrets.token_hex(8)}"
    try:
        with open(name, "wb", opener=lambda path, flags: os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)) as out:
            left = entry.size
            while left > 0:
                data = archive.read(min(left, 1 << 20))
                if not data:
                    raise Malformed("the archive ends too early: not all of the directory was sent")
                out.write(data)
                left -= len(data)
            out.flush()  # a later write would change the time again
            os.fchmod(out.fileno(), entry.mode)
            os.utime(out.fileno(), (entry.mtime, entry.mtime))
        os.replace(name, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        _remove(name, parent)
        raise
    finally:
        os.close(parent)


def _again(root: int, parts: Tuple[str, ...], source: Tuple[str, ...]) -> None:
    """Give a file of the archive a second name."""
    parent, other = _directory(root, parts[:-1]), _directory(root, source[:-1])
    try:
        _remove(parts[-1], parent)
        os.link(source[-1], parts[-1], src_dir_fd=other, dst_dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)
        os.close(other)


def _link(root: int, parts: Tuple[str, ...], where: str) -> None:
    parent = _directory(root, parts[:-1])
    try:
        _remove(parts[-1], parent)
        os.symlink(where, parts[-1], dir_fd=parent)
    finally:
        os.close(parent)


def _remove(name: str, parent: int) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def save(spool: BinaryIO, local: str, mode: int, mtime: Optional[float]) -> None:
    """Write a file under another name beside local, and give it its own at once. Without mtime its time is now."""
    spool.seek(0)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(local)), prefix=".actiond-", delete=False) as out:
        try:
            shutil.copyfileobj(spool, out, 1 << 20)
            out.flush()
            os.fchmod(out.fileno(), mode)
            if mtime is not None:
                os.utime(out.fileno(), (mtime, mtime))
            os.replace(out.name, local)
        except BaseException:
            os.unlink(out.name)
            raise
