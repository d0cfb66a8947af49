"""A view that is drawn anew on the terminal's other screen until somebody has seen enough; leaves it as it was."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from aorta_collectors.report.columns import ascii_only

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live

#: Looking takes at most one part in so many of the time.
PARTS = 20
# Until a key, or another size of the terminal, is noticed.
_TICK_S = 0.2


class HasState(Protocol):
    """What is known at one moment."""

    @property
    def state(self) -> str: ...


Seen = TypeVar("Seen", bound=HasState)
SeenLater = TypeVar("SeenLater", bound=HasState, contravariant=True)


class Drawing(Protocol[SeenLater]):
    """Draws it for so many columns and lines; None for as many as there are."""

    def __call__(
        self, seen: SeenLater, /, width: int, height: int | None = None, *, ascii_only: bool = False
    ) -> RenderableType: ...


def watch_live(
    look: Callable[[], Seen],
    draw: Drawing[Seen],
    interval_s: float,
    console: Console,
    *,
    pressed: Callable[[str], None] = lambda keys: None,
    hint: Callable[[], str] = lambda: "q quits",
) -> Seen | None:
    """Draw what `look` returns, every so many seconds, until its state is "ended", or q or Ctrl-C ends it.

    Args:
        pressed: Told of keys; what is shown is drawn again after that.
        hint: The last line.

    Returns:
        What was seen last.

    Raises:
        SystemExit: SIGTERM or SIGHUP ended it.
        OSError: EIO, the terminal is gone.
    """
    from rich.live import Live

    view = _View(draw, hint)
    live = Live(view, console=console, screen=True, auto_refresh=False)
    with contextlib.suppress(KeyboardInterrupt), _Keys() as keys, live, _signals(live, keys):
        look_at, drawn = 0.0, None
        while not keys.has_quit and (view.snapshot is None or view.snapshot.state != "ended"):
            began = time.monotonic()
            if began >= look_at:
                view.snapshot, drawn = look(), None
                look_at = began + max(interval_s, PARTS * (time.monotonic() - began))
            if drawn != console.size:
                live.refresh()
                drawn = console.size
            if told := keys.wait():
                pressed(told)
                drawn = None
    if view.snapshot is not None:
        height = max(console.height - 2, 10)
        console.print(draw(view.snapshot, console.width, height, ascii_only=ascii_only(console)))
    return view.snapshot


class _View(Generic[Seen]):
    """The last snapshot, in whatever size is asked for."""

    def __init__(self, draw: Drawing[Seen], hint: Callable[[], str]) -> None:
        self.snapshot: Seen | None = None
        self._draw = draw
        self._hint = hint

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.text import Text

        if self.snapshot is not None:
            height = (options.height or console.height) - 1
            drawn = self._draw(self.snapshot, options.max_width, height, ascii_only=ascii_only(console))
            lines = console.render_lines(drawn, options.update(height=None))[:height]
            for line in lines:
                yield from line
                yield Segment.line()
        yield Text(self._hint(), style="dim", no_wrap=True, overflow="crop")


class _Keys:
    """A context manager in which keys are read as they are pressed; without a terminal there are none."""

    def __init__(self) -> None:
        self.has_quit = False
        self._before: list[Any] | None = None

    def __enter__(self) -> _Keys:
        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin, termios.TCSANOW)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, self._before)

    def wait(self) -> str:
        """Until a key is pressed, but not for long; returns the keys. Raises OSError."""
        if self._before is None:
            time.sleep(_TICK_S)
        elif select.select([sys.stdin], [], [], _TICK_S)[0]:
            pressed = os.read(sys.stdin.fileno(), 1024)
            if not pressed:
                raise OSError(errno.EIO, "the terminal has hung up")
            self.has_quit = b"q" in pressed.lower()
            return pressed.decode(errors="replace")
        return ""


@contextlib.contextmanager
def _signals(live: Live, keys: _Keys) -> Iterator[None]:
    """Those that end us do so with the terminal as it was; Ctrl-Z gives it back for as long as we are stopped."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    def stop(*_: object) -> None:
        live.stop()
        keys.__exit__()
        os.kill(os.getpid(), signal.SIGSTOP)
        keys.__enter__()
        live.start(refresh=True)

    with contextlib.ExitStack() as stack:
        for number, handler in ((signal.SIGTERM, end), (signal.SIGHUP, end), (signal.SIGTSTP, stop)):
            if signal.getsignal(number) is not signal.SIG_IGN:
                stack.callback(signal.signal, number, signal.signal(number, handler))
        yield
