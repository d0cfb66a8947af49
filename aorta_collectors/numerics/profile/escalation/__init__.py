"""A closer look at bricks whose time varies or that are far under the roofline: kernels, and where the time went.

`triggers` finds them in the table of bricks, `rate` limits how often, and `escalation`, the part, has a `look` taken
over the next step. There `profiled` runs torch's profiler, of which `kernels` tells what belongs to which brick. A
process of our own, the `helper`, looks at the program from outside with the first of three sources that may:

- perf (`by_perf`) has the kernel note down each system call, which costs some microseconds and stops nobody. It takes
  0.2 s to begin, and the rights of an administrator, mostly.
- strace (`by_strace`) stops threads at each call, which slows a step with many of them, and wakes a few kinds of
  waiting calls early (EINTR). It begins within 20 ms, and needs to be allowed to trace.
- /proc (`by_proc`) is looked at each millisecond, which disturbs nobody. It is an estimate, and needs 0.2 s of steps.

`breakdown` makes of what it tells the fields of a line.
"""
