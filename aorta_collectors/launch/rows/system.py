"""Rows of programs of the system that run another one: limits, priorities, terminals, profilers, other users."""

from __future__ import annotations

from aorta_collectors.launch.row import NO_OPTIONS, Does, Launcher

_DURATION = r"\d+(\.\d*)?([eE]\d+)?[smhd]?|\.\d+[smhd]?"
_CPUS = r"[0-9a-fA-FxX,:N-]+"
_BACKGROUND = "it returns before the program has ended; leave the option out"

SYSTEM = (
    Launcher(
        "env",
        Does.RUN,
        "env(1), GNU coreutils 9.1, later ones",
        values="-u --unset -C --chdir -a --argv0",
        flags="- -i --ignore-environment -v --debug --block-signal --default-signal --ignore-signal "
        "--list-signal-handling",
        assignments=True,
        moves="-C --chdir",
    ),
    Launcher("nohup", Does.RUN, "nohup(1), GNU coreutils 9.1"),
    Launcher(
        "time",
        Does.RUN,
        "time(1), GNU time 1.9",
        values="-f --format -o --output",
        flags="-a --append -p --portability -q --quiet -v --verbose",
    ),
    Launcher(
        "timeout",
        Does.RUN,
        "timeout(1), GNU coreutils 9.1, later ones",
        values="-k --kill-after -s --signal",
        flags="-f --foreground -p --preserve-status -v --verbose",
        operands=(_DURATION,),
    ),
    Launcher("nice", Does.RUN, "nice(1), GNU coreutils 9.1", values="-n --adjustment", flags="-NUMBER"),
    Launcher(
        "ionice",
        Does.RUN,
        "ionice(1), util-linux 2.38",
        values="-c --class -n --classdata",
        flags="-t --ignore",
    ),
    Launcher(
        "chrt",
        Does.RUN,
        "chrt(1), util-linux 2.38",
        values="-T --sched-runtime -P --sched-period -D --sched-deadline",
        flags="-b --batch -d --deadline -f --fifo -i --idle -o --other -r --rr -R --reset-on-fork -v --verbose",
        operands=(r"\d+",),
    ),
    Launcher(
        "taskset",
        Does.RUN,
        "taskset(1), util-linux 2.38",
        flags="-c --cpu-list -a --all-tasks",
        operands=(_CPUS,),
    ),
    Launcher(
        "numactl",
        Does.RUN,
        "numactl(8), numactl 2.0.16",
        values="-C --physcpubind -N --cpunodebind --cpubind -m --membind -i --interleave -w --weighted-interleave "
        "-p --preferred -P --preferred-many",
        flags="-l --localalloc -a --all -b --balancing",
    ),
    Launcher(
        "stdbuf",
        Does.RUN,
        "stdbuf(1), GNU coreutils 9.1",
        values="-i --input -o --output -e --error",
    ),
    Launcher(
        "setsid",
        Does.RUN,
        "setsid(1), util-linux 2.38",
        flags="-c --ctty -f --fork -w --wait",
        stops=dict.fromkeys(("-f", "--fork"), _BACKGROUND),
    ),
    Launcher("unbuffer", Does.RUN, "unbuffer(1), expect 5.45", flags="-p"),
    Launcher(
        "xvfb-run",
        Does.RUN,
        "xvfb-run(1), Debian xvfb 21.1",
        values="-e --error-file -f --auth-file -n --server-num -p --xauth-protocol -s --server-args -w --wait",
        flags="-a --auto-servernum -l --listen-tcp",
    ),
    Launcher("rocprofv3", Does.RUN, "source/bin/rocprofv3.py, rocprofiler-sdk", begins="--"),
    Launcher(
        "sudo",
        Does.RUN,
        "sudo(8), sudo 1.9",
        values="-C --close-from -D --chdir -g --group -h --host -p --prompt -R --chroot -r --role -T --command-timeout "
        "-t --type -U --other-user -u --user",
        flags="-A --askpass -B --bell -b --background -E --preserve-env -H --set-home -k --reset-timestamp "
        "-N --no-update -n --non-interactive -P --preserve-groups -S --stdin",
        assignments=True,
        elsewhere=True,
        moves="-D --chdir -R --chroot",
        stops=dict.fromkeys(("-b", "--background"), _BACKGROUND),
        why="it gives the program an environment and a PATH of its own; run `aorta sweep` itself as that user",
    ),
    Launcher(
        "su",
        Does.LEAVE,
        NO_OPTIONS,
        aliases=("doas",),
        why="it gives the program an environment and a PATH of its own; run `aorta sweep` itself as that user",
    ),
    Launcher("bash", Does.INTERPRET, "bash(1), sh(1)", aliases=("sh", "dash", "zsh", "ksh")),
    Launcher("make", Does.HIDE, NO_OPTIONS, aliases=("gmake", "just"), why="runs what its file says"),
)
