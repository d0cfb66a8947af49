"""What docker run does, as far as a launch is concerned: the command sees the image's environment and the -e words.

It refuses what docker refuses: relative mounts, mounts of what is not there, and two mounts at one place.
"""

import os
import subprocess
import sys

IMAGES = {"plain": {}, "with-path": {"PYTHONPATH": "/image/lib"}}


def main(words):
    assert words[0] == "run", words
    given, mounted, workdir = {}, set(), "/"
    words = words[1:]
    while words[0].startswith("-"):
        option = words.pop(0)
        if option == "--rm":
            continue
        value = words.pop(0)
        if option == "-e":
            name, _, text = value.partition("=")
            given[name] = text
        elif option == "--volume":
            source, target = value.split(":")[:2]
            assert os.path.isabs(source), f"relative: {source}"
            assert os.path.exists(source), f"not there: {source}"
            assert source == target, f"elsewhere: {value}"
            assert target not in mounted, f"mounted twice: {target}"
            mounted.add(target)
        elif option == "-w":
            workdir = value
        else:
            raise AssertionError(f"unknown option {option}")
    image, *command = words
    basic = {"PATH": "/usr/bin:/bin", "HOME": workdir, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env={**basic, **IMAGES[image], **given}, cwd=workdir, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
