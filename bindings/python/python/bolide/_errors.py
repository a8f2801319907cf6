"""The errors of Bolide. Each has the cause as its message, and as ``advice`` what to do."""


class Error(Exception):
    """The base of all errors of Bolide."""

    #: What the caller can do.
    advice: str = ""

    def __str__(self) -> str:
        # KeyError would quote the message.
        return str(self.args[0]) if self.args else ""


class NotFound(Error, KeyError):
    """The named collection, index, file or key does not exist."""


class InvalidInput(Error, ValueError):
    """The input is invalid: fix it and call again."""


class LimitExceeded(Error, ValueError):
    """The input is over a documented limit: make it smaller."""


class Conflict(Error):
    """The object exists, is in use, or a concurrent commit changed what this one depends on."""


class Locked(Error):
    """Another process, or another handle in this process, has the database open."""


class Corruption(Error):
    """Bytes on disk are damaged."""


class Unsupported(Error):
    """The file was written by a newer version of Bolide, or is not a Bolide file."""


class NoSpace(Error, OSError):
    """The disk, the quota or the memory is exhausted, and nothing was written."""


class IoError(Error, OSError):
    """The operating system refused an operation."""


class ReadOnly(Error):
    """The handle or the medium is read-only."""


class Poisoned(Error):
    """An earlier write failed, so this handle refuses further writes: reopen the database."""


class Expired(Error):
    """A cursor token or snapshot is no longer available: start again."""


class Closed(Error):
    """The database, or the object of it, is closed."""


class Interrupted(Error):
    """A handler of a signal interrupted a read."""


class ForkError(Error):
    """The handle belongs to the parent process, or the parent had a database open at the fork."""


class InternalError(Error):
    """An invariant of Bolide is broken: report a bug."""
