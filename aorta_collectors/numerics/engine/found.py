"""What is hooked of a model: its root and named steps; by what was asked for, its leaves or all its modules."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import partial

from torch import nn

from aorta_collectors.numerics.brick import Brick
from aorta_collectors.numerics.config import Config
from aorta_collectors.numerics.engine.anatomy import Anatomy, anatomy_of
from aorta_collectors.numerics.engine.hooked import HookedBrick, Hub, Shown
from aorta_collectors.numerics.spans.span import BRICK_PROFILE
from aorta_collectors.observe.root import Look

_MOST_NAMES = 1000


class FoundBricks:
    """The modules of all models of a process: what is looked at `Below` each of their roots.

    Attributes:
        watched: How many of them are hooked.
        anatomy: What they were taken for: layers by the summary's words for it.
    """

    def __init__(self, config: Config, hub: Hub) -> None:
        self._config = config
        self._hub = hub
        self._bricks: weakref.WeakKeyDictionary[nn.Module, Brick] = weakref.WeakKeyDictionary()
        self._number = 0
        self.watched = 0
        self.anatomy: dict[str, list[str]] = {"embeddings": [], "blocks": [], "norms": [], "heads": []}

    def look(self, parts: Mapping[str, nn.Module]) -> Look:
        anatomy = Anatomy()
        try:
            anatomy = anatomy_of(parts)
        except Exception as error:
            self._hub.failures.add(error)
        is_model = any(True for part in parts.values() for _ in part.parameters(recurse=False))
        return partial(self._look, parts, anatomy, anatomy.step_names(), is_model)

    def _look(
        self,
        parts: Mapping[str, nn.Module],
        anatomy: Anatomy,
        step_names: Mapping[str, str],
        is_model: bool,
        path: str,
        layer: str,
        short: str,
        is_part: bool,
    ) -> HookedBrick | None:
        module = parts[path]
        ancestors = self._ancestors(parts, path)
        step_name = step_names.get(path, "")
        brick = Brick(
            module=weakref.ref(module),
            layer=layer,
            module_type=type(module).__name__,
            step_name=step_name,
            block=anatomy.block_of(path),
            is_leaf=not any(True for _ in module.children()),
            is_root=not is_part and is_model,
            parent=ancestors[-1] if ancestors else None,
            number=self._number,
        )
        self._number += 1
        self._bricks[module] = brick
        self._note(brick)
        return self._hooked(brick, module, short, frozenset(ancestors), is_model)

    def _hooked(
        self, brick: Brick, module: nn.Module, short: str, ancestors: frozenset[Brick], is_model: bool
    ) -> HookedBrick | None:
        config, hub = self._config, self._hub
        chosen = hub.timeline.filter
        own = chosen.of_module(brick.layer, brick.module_type)
        words = own.union(
            chosen.of_step("FORWARD" if brick.is_root else brick.step_name),
            # What lies in a module of a class that is named is part of it, as its path already says of a named path.
            *(chosen.of_module("", ancestor.module_type) for ancestor in ancestors),
            chosen.of_step(BRICK_PROFILE) if config.profiles else (),
        )
        brick.selected = bool(words) or not config.steps
        brick.is_named = bool(own)
        methods = hub.told.of(brick)
        is_step = bool(brick.step_name)
        is_layer = (brick.is_leaf and config.reads_layers) or (brick.is_named and config.traces)
        if not (brick.is_root or is_step or is_layer or config.profiles or any(methods)):
            return None
        self.watched += is_model
        keep = config.traces and brick.selected
        kind = "phase" if is_step else "layer" if is_layer else "brick"
        shown = Shown(brick.step_name or brick.module_type, kind, keep and (is_step or is_layer or config.profiles))
        return HookedBrick(
            brick,
            module,
            short,
            hub,
            methods,
            ancestors,
            shown=Shown("FORWARD", "phase", keep) if brick.is_root and not is_step else shown,
            inner_shown=shown,
            awaits_gradients=is_step or is_layer or config.profiles or any(methods[2:]),
            asked=is_model,
            words=words,
        )

    def close(self) -> None:
        """Nothing of a root is kept that would have to be let go of."""

    def _ancestors(self, parts: Mapping[str, nn.Module], path: str) -> list[Brick]:
        """The modules that enclose the one at `path`, the outermost first."""
        segments = path.split(".") if path else []
        above = (parts.get(".".join(segments[:depth])) for depth in range(len(segments)))
        found = (self._bricks.get(module) for module in above if module is not None)
        return [brick for brick in found if brick is not None]

    def _note(self, brick: Brick) -> None:
        told = {"EMBED": "embeddings", "TRANSFORMER_BLOCK": "blocks", "NORM": "norms", "LM_HEAD": "heads"}
        if brick.step_name:
            layers = self.anatomy[told[brick.step_name]]
            if brick.layer not in layers and len(layers) < _MOST_NAMES:
                layers.append(brick.layer)
