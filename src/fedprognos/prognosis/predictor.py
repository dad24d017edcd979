"""The predictor: a bundle turned into a function from raw rows to health, the same offline and online."""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from fedprognos.arrays import FloatArray
from fedprognos.errors import BundleError, RecipeError
from fedprognos.features import ConditionWarning, Recipe, build_windows
from fedprognos.fleet import Fleet, Unit
from fedprognos.networks import Bundle, Calibration
from fedprognos.prognosis import drift
from fedprognos.prognosis.health import PADDED, Health
from fedprognos.prognosis.points import Point, window_points

BATCH = 1024
"""Windows gathered at a time."""
PASS = 256
"""Windows the network is given at a time: more would no longer fit into the processor's cache."""
Windows = NDArray[np.float32]
Forward = Callable[[Windows], NDArray[np.floating]]


class Predictor:
    """Health of units from raw rows.

    Parameters
    ----------
    recipe
        How rows become windows and outputs become health.
    forward
        Standardised outputs (B,) of scaled windows (B, window, channels).
    calibration
        What intervals are made from, where there is one.

    Examples
    --------
    >>> from fedprognos.networks import Network, NetworkSpec
    >>> recipe = Recipe(task="rul", sensors=("vibration",), window=2, mean=((0.0,),), std=((1.0,),), cap=100.0)
    >>> spec = NetworkSpec(inputs=1, widths=(4,))
    >>> predictor = Predictor.of(Bundle(recipe, Network.seeded(spec, 0, bias=30.0)))
    >>> predictor.windows(np.zeros((1, 2, 1), dtype=np.float32)).round().tolist()
    [30.0]
    """

    def __init__(
        self, recipe: Recipe, forward: Forward, calibration: Calibration | None = None, bundle: Bundle | None = None
    ) -> None:
        self.recipe = recipe
        self.calibration = calibration
        self._forward = forward
        self._bundle = bundle
        self._lock = threading.Lock()

    @staticmethod
    def load(bundle: str | Path, head: str | Path | None = None) -> Predictor:
        """Read a bundle, and a site's personal head where there is one.

        Parameters
        ----------
        bundle
            Folder of the bundle.
        head
            File (.safetensors) with the tensor "head": the regressor's weights, bias last.
        """
        return Predictor.of(Bundle.load(bundle), None if head is None else read_head(head))

    @staticmethod
    def of(bundle: Bundle, head: FloatArray | None = None) -> Predictor:
        """A predictor of a bundle in memory."""
        if head is not None:
            width = bundle.network.spec.widths[-1] + 1
            if head.shape != (width,):
                raise BundleError(
                    f"the head has {head.size} numbers, this model needs {width}",
                    where="head",
                    hint="a personal head belongs to the shared model it was made with",
                )
            bundle = replace(bundle, network=bundle.network.with_head(head))
        return Predictor(bundle.recipe, _TorchForward(bundle), bundle.calibration, bundle)

    @property
    def bundle(self) -> Bundle:
        """The bundle behind it, personal head included."""
        if self._bundle is None:
            raise BundleError("this predictor was made from an ONNX file", hint="load the bundle it was made from")
        return self._bundle

    @property
    def sensors(self) -> tuple[str, ...]:
        return self.recipe.sensors

    @property
    def settings(self) -> tuple[str, ...]:
        return self.recipe.settings

    @property
    def target(self) -> str:
        return self.recipe.target

    @property
    def target_unit(self) -> str:
        return self.recipe.target_unit

    @property
    def recipe_digest(self) -> str:
        """Names the way rows are scaled and cut; state kept under one recipe is of no use under another."""
        return hashlib.sha256(self.recipe.to_json().encode()).hexdigest()

    def windows(self, batch: Windows) -> FloatArray:
        """Health (B,) of scaled windows (B, window, channels). May be called from several threads."""
        return self.recipe.decode(self.outputs(batch))

    def outputs(self, batch: Windows) -> FloatArray:
        """Standardised outputs of the network (B,), before they become health."""
        expected = (self.recipe.window, self.recipe.channels)
        if batch.shape[1:] != expected:
            raise RecipeError(f"windows of shape {batch.shape[1:]}, expected {expected}")
        if not len(batch):
            return np.empty(0)
        with self._lock:
            parts = [self._forward(batch[a : a + PASS]) for a in range(0, len(batch), PASS)]
        return np.concatenate(parts).astype(np.float64)

    def healths(self, points: Sequence[Point], batch: Windows, coverage: float = 0.9) -> list[Health]:
        """Health of each window in one pass, with its interval and what makes it less trustworthy."""
        return [
            health
            for a in range(0, len(points), BATCH)
            for health in self._healths(points[a : a + BATCH], batch[a : a + BATCH], coverage)
        ]

    def _healths(self, points: Sequence[Point], batch: Windows, coverage: float) -> list[Health]:
        values = self.windows(batch)
        bounds: tuple[FloatArray, FloatArray] | None = None
        if self.calibration is not None:
            bounds = self.calibration.interval(values, coverage)
        found = drift.inspect(self.recipe, batch, np.array([PADDED in point.flags for point in points]))
        made = []
        for k, point in enumerate(points):
            flags, reason = found.of(k)
            flags = (*point.flags, *flags)
            if not np.isfinite(values[k]):
                text = f"the inputs are beyond all measure{': ' + reason if reason else ''}"
                made.append(Health(point.unit, point.position, None, state="cannot-say", reason=text, flags=flags))
                continue
            low, high = (None, None) if bounds is None else (_finite(bounds[0][k]), _finite(bounds[1][k]))
            made.append(Health(point.unit, point.position, float(values[k]), low, high, reason=reason, flags=flags))
        return made

    def predict(self, fleet: Fleet, last: bool = True, coverage: float = 0.9) -> list[Health]:
        """Health of each unit: at its last row or cycle, or at every point a full window reaches.

        A unit that is too short for a window is answered too, with the state "warming-up" and what is missing.
        """
        recipe = self.recipe
        recipe.check(fleet.schema, recipe.describe(fleet))
        ready = [replace(unit, target=None, rul_at_end=None) for unit in fleet if _long_enough(recipe, unit)]
        healths: list[Health] = []
        if ready:
            asked = fleet.select(ready)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConditionWarning)  # the flags say so
                windows = build_windows(recipe, asked, points="last" if last else "all", stride=1, labelled=False)
            points = window_points(recipe, asked, windows)
            for start in range(0, len(points), BATCH):
                part = slice(start, start + BATCH)
                healths += self._healths(points[part], windows.batch(part), coverage)
        known = {unit.id for unit in ready}
        healths += [_too_short(recipe, unit) for unit in fleet if unit.id not in known]
        place = {name: k for k, name in enumerate(fleet.ids)}
        return sorted(healths, key=lambda health: place[health.unit])


def read_head(path: str | Path) -> FloatArray:
    """A personal head (L + 1,), bias last; refuse anything else."""
    path = Path(path)
    try:
        tensors = load_tensors(path.read_bytes())
    except OSError as error:
        raise BundleError(f"cannot read the head: {error.strerror}", where=str(path)) from None
    except SafetensorError as error:
        raise BundleError(f"not a head: {error}", where=str(path), hint="give the .safetensors file") from None
    head = tensors.get("head")
    if head is None or head.ndim != 1 or not np.isfinite(head).all():
        raise BundleError("not a head", where=str(path), hint="it holds one tensor 'head', bias last, all finite")
    return np.asarray(head, dtype=np.float64)


class _TorchForward:
    """A bundle's network as a function of windows, on one thread."""

    def __init__(self, bundle: Bundle) -> None:
        self._network = bundle.network.module().eval()
        self._blocks = ExitStack()  # open as long as this object lives: its weights do not change
        self._blocks.enter_context(self._network.in_blocks())

    def __call__(self, batch: Windows) -> NDArray[np.floating]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # windows are small: more threads cost more than they bring
        try:
            with torch.inference_mode():
                outputs: NDArray[np.floating] = self._network(torch.from_numpy(np.ascontiguousarray(batch))).numpy()
        finally:
            torch.set_num_threads(threads)
        return outputs


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None


def _long_enough(recipe: Recipe, unit: Unit) -> bool:
    if recipe.short == "pad" or recipe.cycle == "grid":
        return True
    if unit.cycles is None:
        return unit.rows >= recipe.window
    return bool((np.diff(unit.cycles) >= recipe.window).any())


def _too_short(recipe: Recipe, unit: Unit) -> Health:
    position = float(unit.positions[-1])
    if unit.cycles is None:
        text = f"{unit.rows} of {recipe.window} rows; {recipe.window - unit.rows} more are needed"
        return Health(unit.id, position, None, state="warming-up", reason=text)
    text = f"no cycle has the {recipe.window} samples that are needed"
    return Health(unit.id, position, None, state="cannot-say", reason=text)
