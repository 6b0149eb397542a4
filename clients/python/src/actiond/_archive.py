"""Directories as tar archives. An archive that was forged writes nothing outside of its target, and through no link."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tarfile
import tempfile
from typing import Any, BinaryIO, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ._errors import ActiondError, Malformed

BLOCK = 512
MAX_ENTRIES = 1_000_000
MAX_NAMES = 1 << 20  # bytes of one extended header
MAX_ALL_NAMES = 128 << 20  # bytes of the names and targets of all members, which unpack remembers


class Entry(NamedTuple):
    """A member of an archive: kind is "0" for a file, "1" for a second name, "2" for a link, "5" for a directory."""

    name: str
    kind: str
    mode: int
    size: int
    mtime: float
    target: str


def pack(directory: str) -> BinaryIO:
    """Return a temporary file with the contents of a directory: files, directories and links, with modes and times."""
    def plain(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        return member if member.isreg() or member.isdir() or member.issym() else None

    spool: Any = tempfile.TemporaryFile()
    with tarfile.open(fileobj=spool, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.dereference = False
        for name in sorted(os.listdir(directory)):
            archive.add(os.path.join(directory, name), name, filter=plain)
    spool.seek(0)
    return spool  # type: ignore[no-any-return]


def entries(archive: BinaryIO) -> Iterator[Entry]:
    """Yield the members of an archive; archive is at the first byte of a file's contents then."""
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
        if names > MAX_ALL_NAMES:
            raise Malformed("the names in the archive are too long")
        start = archive.tell()
        yield Entry(os.fsdecode(name), "0" if kind == "\0" else kind, _number(header[100:108]) & 0o777, size,
                    _number(header[136:148]), os.fsdecode(target))
        archive.seek(start + -(-size // BLOCK) * BLOCK if kind in "0\0" else start)
        extended = {}
    raise Malformed("the archive has too many members")


def unpack(archive: BinaryIO, target: str) -> None:
    """Write the members of an archive, without the first element of their names, into a directory, which is made.

    Links that leave the directory, and what is neither file, directory nor link, are left out. Files and links in the
    way are replaced. Links are made last, so no file is written through one.
    """
    os.makedirs(target, exist_ok=True)
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY)
    made: Dict[Tuple[str, ...], bool] = {}
    links: List[Tuple[Tuple[str, ...], str]] = []
    modes: List[Tuple[Tuple[str, ...], Entry]] = []
    try:
        for entry in entries(archive):
            parts = tuple(p for p in entry.name.split("/") if p not in ("", "."))[0 if entry.name.startswith("./") else 1:]
            if ".." in parts or "\0" in entry.name or entry.name.startswith("/") or not parts:
                continue
            if entry.kind == "0":
                _file(root, parts, archive, entry)
                made[parts] = True
            elif entry.kind == "5":
                os.close(_directory(root, parts))
                modes.append((parts, entry))
            elif entry.kind == "1":
                source = tuple(p for p in entry.target.split("/") if p not in ("", "."))[1:]
                if source in made:
                    _again(root, parts, source)
            elif entry.kind == "2" and _stays(entry.target, len(parts) - 1):
                links.append((parts, entry.target))
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
        if name in (b"path", b"linkpath", b"size"):
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


def save(spool: BinaryIO, local: str, mode: int) -> None:
    """Write a file under another name beside local, and give it its own at once."""
    spool.seek(0)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(os.path.abspath(local)), prefix=".actiond-", delete=False) as out:
        try:
            shutil.copyfileobj(spool, out, 1 << 20)
            os.fchmod(out.fileno(), mode)
            os.replace(out.name, local)
        except BaseException:
            os.unlink(out.name)
            raise
