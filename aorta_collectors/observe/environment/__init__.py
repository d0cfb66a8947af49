"""What a run depends on beside its program: versions, machine, settings of torch, variables, and states of generators.

For manifests of evidence, so that two runs can be told to have been alike or not. Nothing here changes what it looks
at: no device is initialized, no package imported, no random number drawn, no process started. What cannot be found out
is null.
"""

from aorta_collectors.observe.environment.generators import generator_states
from aorta_collectors.observe.environment.machine import machine
from aorta_collectors.observe.environment.revision import revision_of
from aorta_collectors.observe.environment.settings import settings
from aorta_collectors.observe.environment.software import software, variables

__all__ = ["environment", "generator_states", "machine", "revision_of", "settings", "software", "variables"]


def environment() -> dict[str, object]:
    """All but the generators, of this process as it is now; JSON-ready. Needs torch."""
    return {**software(), **machine(), "settings": settings(), "variables": variables()}
