"""What this machine itself refused (a file, a disk, a limit), as a cause with a path and a next step."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

from sparktui.errors import SparktuiError


class LocalFault(SparktuiError):
    """The head's own files, disks or limits refused."""


def local_fault(error: OSError | MemoryError) -> LocalFault | None:
    """The fault that an error of the operating system means; None for one of a connection, or of no known kind."""
    if isinstance(error, MemoryError):
        return _fault("this process gets no more memory", "free memory, or raise: ulimit -v")
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) and error.filename else None
    number = error.errno
    if number in _LIMITS:
        return _fault(*_LIMITS[number])
    if path is None:
        # Only the working folder is asked for without a name.
        gone = ("the working folder is gone: deleted, or its disk unmounted", "cd into the checkout, then run it again")
        return _fault(*gone) if number == errno.ENOENT else _nameless(error)
    if number in (errno.EACCES, errno.EPERM):
        return foreign(_first(path, lambda each: not _usable(each)) or path)
    if number == errno.ENOSPC:
        return _full(path)
    if number == errno.ENOTDIR or (number == errno.EEXIST and path.is_file()):
        file = _first(path, lambda each: each.exists() and not each.is_dir()) or path
        return _fault(f"{file} is a file, and a folder belongs there", f"move it away: mv {_q(file)} {_q(file)}.old")
    if number == errno.EISDIR:
        return _fault(f"{path} is a folder, and a file belongs there", f"move it away: mv {_q(path)} {_q(path)}.old")
    if number == errno.ELOOP:
        link = _first(path, Path.is_symlink) or path
        return _fault(f"{link} is a link that leads back to itself", f"remove it: rm {_q(link)}")
    if number in _FILES:
        what, fix = _FILES[number]
        return _fault(f"{path}: {what}", fix.format(path=_q(_existing(path))))
    return None


def foreign(*paths: Path) -> LocalFault:
    """Files that another user owns, or that this one may not use; they are all named."""
    first = paths[0]
    owner = _owner(first)
    names = ", ".join(map(str, paths))
    mine = owner == os.geteuid()
    belong = "belongs" if len(paths) == 1 else "belong"
    what = f"{names}: no permission" if owner is None or mine else f"{names} {belong} to {_user(owner)}"
    if mine:
        return _fault(what, f"give yourself access: chmod -R u+rwX {' '.join(map(_q, paths))}")
    return _fault(what, f"make it yours: sudo chown -R {_q(_user(os.geteuid()))}: {' '.join(map(_q, paths))}")


_LIMITS = {
    errno.EMFILE: ("this process may open no more files", "raise the limit: ulimit -n 4096, then run it again"),
    errno.ENFILE: ("this machine may open no more files", "see who has them: lsof | wc -l; cat /proc/sys/fs/file-nr"),
    errno.EAGAIN: ("this user may start no more processes", "raise the limit: ulimit -u, or end some"),
    errno.ENOMEM: ("this machine gives no more memory", "see who has it: free -h; ps aux --sort=-rss | head"),
    errno.EFBIG: ("a file may not grow this large", "raise the limit: ulimit -f unlimited, then run it again"),
}
_FILES = {
    errno.EROFS: ("its file system is read-only", "see why: findmnt -T {path}; dmesg | tail"),
    errno.EDQUOT: ("this user's disk quota is used up", "make room; see: quota -s"),
    errno.EIO: ("the disk reports an I/O error", "see: dmesg | tail"),
    errno.ESTALE: ("its NFS server has forgotten it", "mount it again; see: findmnt -T {path}"),
    errno.ENOENT: ("does not exist", "see what is there: ls -la {path}"),
    errno.ENAMETOOLONG: ("the name is too long", "use a shorter path"),
    errno.EBUSY: ("is in use", "see by whom: fuser -vm {path}"),
}


def _fault(what: str, fix: str) -> LocalFault:
    return LocalFault(what, fix=fix, node="head")


def _nameless(error: OSError) -> LocalFault | None:
    if error.errno == errno.ENOSPC:
        return _fault("a disk is full", "make room; see: df -h; df -i")
    if error.errno in _FILES and error.errno != errno.ENOENT:
        return _fault(f"a file could not be used: {_FILES[error.errno][0]}", "see: df -h; dmesg | tail")
    return None


def _full(path: Path) -> LocalFault:
    folder = _existing(path)
    try:
        room = os.statvfs(folder)
        no_inodes = room.f_files > 0 and room.f_favail == 0 and room.f_bavail > 0
    except OSError:
        no_inodes = False
    if no_inodes:
        return _fault(f"{path}: its file system has no inodes left", f"delete small files; see: df -i {_q(folder)}")
    return _fault(f"{path}: its disk is full", f"make room; see: df -h {_q(folder)}")


def _first(path: Path, wanted: object) -> Path | None:
    """The topmost part of the path that is so."""
    assert callable(wanted)
    for each in (*reversed(path.absolute().parents), path):
        try:
            if wanted(each):
                return each
        except OSError:
            continue
    return None


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    for each in (path, *path.parents):
        try:
            if each.exists():
                return each
        except OSError:
            continue
    return path


def _usable(path: Path) -> bool:
    """True as well for what is not there: the folder above it then refuses."""
    if not path.exists():
        return os.access(path.parent, os.W_OK | os.X_OK) if path.parent.exists() else True
    return os.access(path, os.X_OK if path.is_dir() else os.R_OK)


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except OSError:
        return None


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}" if number != os.geteuid() else str(number)


def _q(path: Path | str) -> str:
    return shlex.quote(str(path))
