"""Errors that users see as one line, without a traceback. docs/reference/messages.md explains each kind by its slug."""

from __future__ import annotations


class CollectorsError(Exception):
    """Base of all errors that are the user's to fix.

    Attributes:
        slug: Short name of the kind, the heading of its section in the messages page.
        exit_code: What a command of ours exits with.
    """

    slug = "error"
    exit_code = 1


class OptionsError(CollectorsError):
    """A collect: block that cannot be honoured.

    Args:
        path: Where in the options, such as "NANLOG_SPEC: follow[0].stride"; empty for the block itself.
        message: What is wrong, what is allowed and what to do.
    """

    slug = "bad-options"
    exit_code = 2

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message

    def below(self, prefix: str) -> OptionsError:
        """The same error, placed in the file that the user edits."""
        if not self.path:
            return OptionsError(prefix, self.message)
        return OptionsError(f"{prefix}.{self.path}", self.message)


class CollectorLoadError(CollectorsError):
    """A collector that is installed but cannot be loaded, or that two packages offer."""

    slug = "collector-load"


class LaunchError(CollectorsError):
    """A launch through which a collector cannot be attached."""

    slug = "launch-refused"


class ArtifactError(CollectorsError):
    """An artifact or a run directory that cannot be read."""

    slug = "unreadable-artifact"
