"""Rows of what runs a program in a container, and how each takes variables and directories in."""

from __future__ import annotations

from aorta_collectors.launch.row import PLAIN, Does, Launcher

_ANY = r"(?s).+"
_DETACHED = "it returns before the program has ended; leave the option out"
_DOCKER_VALUES = (
    "--add-host --annotation -a --attach --blkio-weight --blkio-weight-device --cap-add --cap-drop --cgroup-parent "
    "--cgroupns --cidfile --cpu-count --cpu-percent --cpu-period --cpu-quota --cpu-rt-period --cpu-rt-runtime "
    "-c --cpu-shares --cpus --cpuset-cpus --cpuset-mems --detach-keys --device --device-cgroup-rule "
    "--device-read-bps --device-read-iops --device-write-bps --device-write-iops --dns --dns-option --dns-search "
    "--domainname --entrypoint -e --env --env-file --expose --gpus --group-add --health-cmd --health-interval "
    "--health-retries --health-start-interval --health-start-period --health-timeout -h --hostname --io-maxbandwidth "
    "--io-maxiops --ip --ip6 --ipc --isolation --kernel-memory -l --label --label-file --link --link-local-ip "
    "--log-driver --log-opt --mac-address -m --memory --memory-reservation --memory-swap --memory-swappiness --mount "
    "--name --net --network --network-alias --oom-score-adj --pid --pids-limit --platform -p --publish --pull "
    "--restart --runtime --security-opt --shm-size --stop-signal --stop-timeout --storage-opt --sysctl --tmpfs "
    "--ulimit -u --user --userns --uts -v --volume --volume-driver --volumes-from -w --workdir"
)
_DOCKER_FLAGS = (
    "-d --detach --disable-content-trust --init -i --interactive --no-healthcheck --oom-kill-disable --privileged "
    "-P --publish-all -q --quiet --read-only --rm --sig-proxy -t --tty --use-api-socket"
)
_PODMAN_VALUES = (
    "--arch --authfile --cgroup-conf --cgroups --chrootdirs --conmon-pidfile --env-merge --gidmap "
    "--health-on-failure --hostuser --image-volume --init-path --os --passwd-entry --personality --pidfile --pod "
    "--pod-id-file --preserve-fds --requires --sdnotify --seccomp-policy --secret --subgidname --subuidname "
    "--systemd --timeout --tz --uidmap --umask --unsetenv --variant"
)
_PODMAN_FLAGS = (
    "--env-host --http-proxy --no-hosts --passwd --read-only-tmpfs --replace --rmi --rootfs --tls-verify --unsetenv-all"
)
_STOPS = {"-d": _DETACHED, "--detach": _DETACHED}
_APPTAINER_VALUES = (
    "--add-caps --app --apply-cgroups -B --bind --blkio-weight --blkio-weight-device --cpu-shares --cpus "
    "--cpuset-cpus --cpuset-mems --cwd --pwd --dns --drop-caps --env --env-file --fusemount -H --home --hostname "
    "--memory --memory-reservation --memory-swap --mount --network --network-args --no-mount -o --overlay --pem-path "
    "--pids-limit -S --scratch --security -W --workdir"
)
_APPTAINER_FLAGS = (
    "--allow-setuid --compat -e --cleanenv -c --contain -C --containall --disable-cache --docker-login -f --fakeroot "
    "--ignore-fakeroot-command --ignore-subuid --ignore-userns -i --ipc --keep-privs --net --no-eval --no-home "
    "--no-https --no-init --no-privs --no-umask --nv --nvccli --oom-kill-disable --passphrase -p --pid --rocm "
    "--sharens --underlay --unsquash -u --userns --uts --writable -w --writable-tmpfs"
)

CONTAINERS = (
    Launcher(
        "docker run",
        Does.CONTAIN,
        "docker run --help, Docker 28.2",
        aliases=("docker container run",),
        spelling=PLAIN,
        values=_DOCKER_VALUES,
        flags=_DOCKER_FLAGS,
        operands=(_ANY,),
        hides="--entrypoint",
        stops=_STOPS,
        closed=True,
    ),
    Launcher(
        "podman run",
        Does.CONTAIN,
        "podman-run(1), podman 4.3",
        spelling=PLAIN,
        values=f"{_DOCKER_VALUES} {_PODMAN_VALUES}",
        flags=f"{_DOCKER_FLAGS} {_PODMAN_FLAGS}",
        operands=(_ANY,),
        hides="--entrypoint --rootfs",
        stops=_STOPS,
        closed=True,
    ),
    Launcher(
        "apptainer exec",
        Does.CONTAIN,
        "cmd/internal/cli/action_flags.go, Apptainer 1.3",
        aliases=("singularity exec",),
        spelling=PLAIN,
        values=_APPTAINER_VALUES,
        flags=_APPTAINER_FLAGS,
        operands=(_ANY,),
    ),
)
