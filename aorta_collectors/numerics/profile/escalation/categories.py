"""What kind of work a system call is: allocation, waiting for other threads, a driver, input, output, or other."""

from __future__ import annotations

import platform

#: In the order in which they are told.
CATEGORIES = ("mmap", "futex", "ioctl", "read", "write", "other")
OTHER = "other"
#: No system call: the thread's own work.
COMPUTE = "compute"

# By name, and where there are such, the numbers on x86_64 (arch/x86/entry/syscalls/syscall_64.tbl) and on machines that
# came later (include/uapi/asm-generic/unistd.h).
_CALLS: dict[str, dict[str, tuple[int, int] | None]] = {
    "mmap": {
        "mmap": (9, 222),
        "mmap2": None,
        "munmap": (11, 215),
        "mremap": (25, 216),
        "brk": (12, 214),
        "madvise": (28, 233),
        "process_madvise": (440, 440),
        "mprotect": (10, 226),
        "pkey_mprotect": (329, 288),
        "mlock": (149, 228),
        "mlock2": (325, 284),
        "munlock": (150, 229),
        "mlockall": (151, 230),
        "munlockall": (152, 231),
        "mbind": (237, 235),
        "move_pages": (279, 239),
        "migrate_pages": (256, 238),
        "remap_file_pages": (216, 234),
    },
    "futex": {
        "futex": (202, 98),
        "futex_time64": None,
        "futex_waitv": (449, 449),
        "futex_wait": (455, 455),
        "futex_wake": (454, 454),
        "futex_requeue": (456, 456),
    },
    "ioctl": {
        "ioctl": (16, 29),
    },
    "read": {
        "read": (0, 63),
        "pread64": (17, 67),
        "readv": (19, 65),
        "preadv": (295, 69),
        "preadv2": (327, 286),
        "readahead": (187, 213),
    },
    "write": {
        "write": (1, 64),
        "pwrite64": (18, 68),
        "writev": (20, 66),
        "pwritev": (296, 70),
        "pwritev2": (328, 287),
        "fsync": (74, 82),
        "fdatasync": (75, 83),
        "sync": (162, 81),
        "syncfs": (306, 267),
        "sync_file_range": (277, 84),
        "msync": (26, 227),
        "fallocate": (285, 47),
        "sendfile": (40, 71),
        "copy_file_range": (326, 285),
        "splice": (275, 76),
    },
}
_CATEGORY = {name: category for category, calls in _CALLS.items() for name in calls}
_COLUMN = {"x86_64": 0, "aarch64": 1, "riscv64": 1, "loongarch64": 1}

# Functions of the kernel that a thread sleeps in, by a part of their names.
_CHANNELS = (
    ("futex", "futex"),
    ("pipe_read", "read"),
    ("pipe_write", "write"),
    ("folio_wait", "read"),
    ("wait_on_page", "read"),
    ("jbd2", "write"),
    ("writeback", "write"),
    ("fsync", "write"),
    ("ioctl", "ioctl"),
)


def of_name(name: str) -> str:
    """The category of a system call."""
    return _CATEGORY.get(name, OTHER)


def of_channel(name: str) -> str:
    """The category of a function of the kernel that a thread sleeps in (/proc/PID/wchan)."""
    return next((category for part, category in _CHANNELS if part in name), OTHER)


def by_number(machine: str = "") -> dict[int, str]:
    """The categories of numbered system calls that are not "other", on this machine or on one of another kind.

    Args:
        machine: As platform.machine() has it. Of an unknown kind no number is known.
    """
    column = _COLUMN.get(machine or platform.machine())
    if column is None:
        return {}
    return {
        numbers[column]: category
        for category, calls in _CALLS.items()
        for numbers in calls.values()
        if numbers is not None
    }
