"""`aorta-collectors sweep`: `aorta sweep`, for recipes that ask for collectors which aorta does not know by itself."""

from __future__ import annotations

import click


class _Sweep(click.Group):
    """The host's commands, in this process, with the plugin attached before any of them begins."""

    def list_commands(self, context: click.Context) -> list[str]:
        from aorta_collectors.host.sweep_command import host_sweep

        return host_sweep().list_commands(context)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        from aorta_collectors.host.sweep_command import host_sweep

        return host_sweep().get_command(context, name)

    def invoke(self, context: click.Context) -> object:
        from aorta_collectors.host.attach import require_attached

        require_attached()
        return super().invoke(context)


@click.group(cls=_Sweep)
def sweep() -> None:
    """`aorta sweep`, with every installed collector known by its name.

    Commands, options, output and exit codes are those of `aorta sweep`. aorta reads the recipe of a workload before it
    loads a plugin, and refuses all names in its collect: blocks but rocprof, proton, numerics, layer_numerics and
    amd_log. Here the plugin comes first, so that a recipe can ask for tensors, for memory, and for collectors of other
    packages.

    Under torchrun: torchrun -m aorta_collectors sweep run ...

    Example: aorta-collectors sweep run --recipe sweep.yaml --collect tensors,memory -- python train.py
    """
