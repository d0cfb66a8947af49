"""Rows of programs that run another one in a Python environment which they choose or make."""

from __future__ import annotations

from aorta_collectors.launch.row import GNU, PLAIN, Does, Launcher

ENVIRONMENTS = (
    Launcher(
        "uv run",
        Does.RUN,
        "uv run --help, uv 0.13",
        spelling=PLAIN,
        values="--extra --no-extra --group --no-group --only-group --no-editable-package --env-file -w --with "
        "--with-editable --with-requirements --package --python-platform --index --default-index -i --index-url "
        "--extra-index-url -f --find-links --index-strategy --keyring-provider -P --upgrade-package --upgrade-group "
        "--resolution --prerelease --prerelease-package --fork-strategy --exclude-newer --exclude-newer-package "
        "--no-sources-package --reinstall-package --link-mode -C --config-setting --config-settings-package "
        "--no-build-isolation-package --no-build-package --no-binary-package --cache-dir --refresh-package "
        "-p --python --color --allow-insecure-host --directory --project --config-file",
        flags="--all-extras --dev --no-dev --only-dev --no-default-groups --all-groups --no-editable --exact "
        "--no-env-file --isolated --active --no-sync --locked --frozen --all-packages --no-project --no-index "
        "-U --upgrade --no-sources --reinstall --compile-bytecode --no-build-isolation --no-build --no-binary "
        "--require-build-hashes --no-require-build-hashes -n --no-cache --refresh --managed-python "
        "--no-managed-python --no-python-downloads -q --quiet -v --verbose --system-certs --native-tls --offline "
        "--no-progress --no-config -m --module -s --script --gui-script",
        hides="-m --module -s --script --gui-script",
        elsewhere=True,
        moves="--directory",
    ),
    Launcher("poetry run", Does.RUN, "poetry/console/commands/run.py, poetry 2.5", spelling=GNU, elsewhere=True),
    Launcher("pipenv run", Does.RUN, "pipenv/cli/command.py, pipenv 2026.10", spelling=GNU, elsewhere=True),
    Launcher(
        "conda run",
        Does.RUN,
        "conda run --help, conda 22.9 to 26",
        aliases=("mamba run",),
        values="-n --name -p --prefix --cwd",
        flags="-v --verbose --dev --debug-wrapper-scripts -s --no-capture-output --live-stream",
        elsewhere=True,
        moves="--cwd",
    ),
)
