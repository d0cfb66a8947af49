"""Rows of what starts programs on the machines of a cluster, and waits for them."""

from __future__ import annotations

from aorta_collectors.launch.row import GNU, MPI, Does, Launcher

_NOTHING_PASSED = "it keeps the collector's variables from the program; leave the option out"

CLUSTERS = (
    Launcher(
        "mpirun",
        Does.RUN,
        "mpirun(1) of Open MPI 4.1, mpiexec.hydra -help of MPICH 4.0",
        aliases=("mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.hydra"),
        spelling=MPI,
        values="-n -np -c -N -H -host -hosts -hostfile -default-hostfile -machinefile -f -max-vm-size -cpu-set "
        "-cpu-list -npersocket -npernode -ppn -map-by -rank-by -bind-to -membind -cpus-per-proc -cpus-per-rank -rf "
        "-rankfile -output-filename -stdin -xml-file -xterm -path -prefix -preload-files -wd -wdir -x "
        "-mca:2 -gmca:2 -genv:2 -env:2 -am -tune -timeout -cartofile -cf -max-restarts "
        "-ompi-server -personality -ppr -report-events -report-pid -report-uri -launch-agent "
        "-launcher -launcher-exec -rmk -topolib -demux -iface -outfile-pattern -errfile-pattern "
        "-prepend-pattern -nameserver -order-nodes -localhost -usize -gpus-per-proc -genvlist -envlist",
        flags="-q -quiet -v -verbose -display-map -display-allocation -display-devel-map -display-devel-allocation "
        "-display-topo -dvm -novm -pernode -bycore -byslot -bynode -nolocal -nooversubscribe -oversubscribe "
        "-bind-to-core -bind-to-socket -report-bindings -merge-stderr-to-stdout -tag-output -timestamp-output -xml "
        "-noprefix -s -preload-binary -set-cwd-to-session-dir -allow-run-as-root -continuous -disable-recovery "
        "-enable-recovery -do-not-resolve -leave-session-attached -report-child-jobs-separately -show-progress "
        "-use-hwthread-cpus -use-regexp -get-stack-traces -report-state-on-timeout -d -debug-devel -debug-daemons "
        "-l -prepend-rank -print-all-exitcodes -enable-x -disable-x -disable-auto-cleanup "
        "-disable-hostname-propagation -skip-launch-node -pmi-port -genvall -envall -genvnone -envnone",
        stops=dict.fromkeys(("-genvnone", "-envnone", "-genvlist", "-envlist"), _NOTHING_PASSED),
        moves="-wd -wdir -set-cwd-to-session-dir",
    ),
    Launcher(
        "srun",
        Does.RUN,
        "srun(1), Slurm 22.05",
        spelling=GNU,
        values="--accel-bind -A --account --acctg-freq --bb --bbf --bcast-exclude -b --begin -D --chdir "
        "--cluster-constraint -M --clusters --comment -C --constraint --container -S --core-spec "
        "--cores-per-socket --cpu-bind --cpu-freq --cpus-per-gpu -c --cpus-per-task --deadline --delay-boot "
        "-d --dependency -m --distribution --epilog -e --error -x --exclude --export -B --extra-node-info "
        "--gid --gpu-bind --gpu-freq -G --gpus --gpus-per-node --gpus-per-socket --gpus-per-task --gres --gres-flags "
        "--het-group --hint -i --input -J --job-name --jobid -L --licenses --mail-type --mail-user --mcs-label --mem "
        "--mem-bind --mem-per-cpu --mem-per-gpu --mincpus --mpi --msg-timeout --network -F --nodefile -w --nodelist "
        "-N --nodes -n --ntasks --ntasks-per-core --ntasks-per-gpu --ntasks-per-node --ntasks-per-socket --open-mode "
        "-o --output -p --partition --power --prefer --priority --profile --prolog -q --qos -r --relative "
        "--reservation --signal --slurmd-debug --sockets-per-node --switches --task-epilog --task-prolog "
        "--thread-spec -T --threads --threads-per-core -t --time --time-min --tmp "
        "--uid -W --wait --wckey",
        # Those with a value that only comes behind "=" are flags here.
        flags="--bcast --compress --contiguous -X --disable-status --exact --exclusive -H --hold "
        "-I --immediate -K --kill-on-bad-exit -l --label --nice -Z --no-allocate -k --no-kill -O --overcommit "
        "--overlap -s --oversubscribe -E --preserve-env --propagate --pty -Q --quiet --quit-on-interrupt --reboot "
        "--resv-ports --send-libs --spread-job -u --unbuffered --use-min-nodes -v --verbose --x11 "
        "--multi-prog --test-only",
        hides="--multi-prog --test-only --container",
        moves="-D --chdir",
    ),
)
