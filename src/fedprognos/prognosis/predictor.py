"""The predictor: a bundle turned into a function from raw rows to health, the same offline and online."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from fedprognos.arrays import FloatArray, Rows
from fedprognos.errors import BundleError
from fedprognos.features import Recipe
from fedprognos.fleet import Fleet, Unit
from fedprognos.networks import (
    KEPT_OUT,
    Bundle,
    Calibration,
    Network,
    Novelty,
    Stepper,
    Trust,
    one_torch_thread,
)
from fedprognos.prognosis.health import Health, RowTable
from fedprognos.prognosis.health_model import Forward, HealthModel, StatefulNetwork, WindowNetwork
from fedprognos.prognosis.stream import Stream
from fedprognos.prognosis.table_prediction import predict_frame
from fedprognos.tables import TableLayout

if TYPE_CHECKING:
    import pandas as pd


class Predictor(HealthModel):
    """Health of units from raw rows.

    Parameters
    ----------
    recipe, network, calibration, table, novelty
        See :class:`HealthModel`.
    bundle
        Where it comes from.

    Examples
    --------
    >>> from fedprognos.networks import Network, NetworkSpec
    >>> recipe = Recipe(task="rul", sensors=("vibration",), window=2, mean=((0.0,),), std=((1.0,),), cap=100.0)
    >>> spec = NetworkSpec(inputs=1, widths=(4,))
    >>> predictor = Predictor.from_bundle(Bundle(recipe, Network.seeded(spec, 0, bias=30.0)))
    >>> predictor.windows(np.zeros((1, 2, 1), dtype=np.float32)).round().tolist()
    [30.0]
    """

    def __init__(
        self,
        recipe: Recipe,
        network: Forward | WindowNetwork | StatefulNetwork,
        calibration: Calibration | None = None,
        bundle: Bundle | None = None,
        table: TableLayout | None = None,
        novelty: Novelty | None = None,
    ) -> None:
        super().__init__(recipe, network, calibration, table, novelty)
        self._bundle = bundle
        self.signed_by = None if bundle is None else bundle.signed_by
        """Names of the trusted keys that signed the model; None where that was not checked."""

    @staticmethod
    def load(bundle: str | Path, head: str | Path | None = None, trust: Trust | None = None) -> Predictor:
        """Read a bundle, and a site's personal head if one is given.

        Parameters
        ----------
        bundle
            Folder of the bundle.
        head
            File (.safetensors) with the tensor "head": the regressor's weights, bias last.
        trust
            Keys that must have signed the bundle and the head; None to check nothing.
        """
        if head is None:
            return Predictor.from_bundle(Bundle.load(bundle, trust))
        return Predictor.from_bundle(Bundle.load(bundle, trust), *read_head(head, trust))

    @staticmethod
    def from_bundle(bundle: Bundle, head: FloatArray | None = None, kept_out: FloatArray | None = None) -> Predictor:
        """A predictor of a bundle in memory; intervals with a personal head need what it says of kept-out machines."""
        if head is not None:
            width = len(bundle.network.head)
            if head.shape not in ((width,), (len(bundle.network.with_reservoir().head),)):
                raise BundleError(
                    f"the head has {head.size} numbers, this model needs {width}",
                    where="head",
                    hint="a personal head belongs to the shared model it was made with",
                )
            bundle = bundle.with_own_head(head, kept_out, {"head": "personal"})
        network = Stepper(bundle.network) if bundle.recipe.life else _TorchWindows(bundle.network)
        return Predictor(bundle.recipe, network, bundle.calibration, bundle, bundle.table, bundle.novelty)

    @property
    def no_intervals(self) -> str:
        """Why the predictor gives no intervals; empty if it gives them."""
        if self.calibration is not None:
            return ""
        return str(self.provenance.get("no_intervals", "this model was not calibrated"))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What cannot be told of a machine unlike those of training, and why where the bundle says it."""
        reason = self.provenance.get("no_novelty", "")
        missing = super().unchecked
        if self.novelty is None and reason:
            missing = (*missing[:-1], f"{missing[-1]} ({reason})")
        return missing

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the model comes from, as its bundle says; empty without a bundle."""
        return {} if self._bundle is None else self._bundle.provenance

    @cached_property
    def fingerprint(self) -> str:
        """Names everything that decides a prediction: recipe, weights, intervals; see :class:`Bundle`."""
        return self.digest if self._bundle is None else self._bundle.fingerprint

    @property
    def signature(self) -> str:
        """In words, whether the model's signature was checked."""
        if self.signed_by is None:
            return "signature not checked (give --trust FILE)"
        return f"signed by {', '.join(self.signed_by)}"

    @property
    def bundle(self) -> Bundle:
        """The bundle of this predictor, with the personal head."""
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
    def target_measure(self) -> str:
        return self.recipe.target_measure

    @overload
    def predict(self, fleet: Fleet, last: bool = True, coverage: float = 0.9) -> list[Health]: ...

    @overload
    def predict(
        self, fleet: pd.DataFrame, last: bool = True, coverage: float = 0.9, **columns: str
    ) -> pd.DataFrame: ...

    def predict(
        self, fleet: Fleet | pd.DataFrame, last: bool = True, coverage: float = 0.9, **named: str
    ) -> list[Health] | pd.DataFrame:
        """Health of each unit at its last row or cycle, or at every row or cycle where there is something to say.

        A unit that is too short for a window is answered too, with the state "warming-up" and what is missing. A data
        frame is answered with one; `unit`, `time` and `cycle` name its columns where they are not those of training.
        """
        if not isinstance(fleet, Fleet):
            return predict_frame(self, fleet, last=last, coverage=coverage, **named)
        columns = self.recipe.check(fleet.schema, self.recipe.describe(fleet))
        stream = Stream(self, sys.maxsize, coverage=coverage, trusting=True)
        every: dict[str, list[Health]] = {}
        for unit in fleet:
            updates = stream.feed_table(table_of(unit, columns), every=not last)
            every[unit.id] = [health for update in updates for health in update.healths if health.state != "warming-up"]
        for health in stream.finish():
            every[health.unit].append(health)
        if last:
            return [health for health in stream.healths(fleet.ids) if health is not None]
        return [health for name in fleet.ids for health in every[name] or stream.healths([name]) if health is not None]

    def stream(self, max_units: int = 50_000, *, coverage: float = 0.9, strict: bool = True) -> Stream:
        """Units under watch; see :class:`Stream`."""
        return Stream(self, max_units, coverage=coverage, strict=strict)


def table_of(unit: Unit, columns: tuple[list[int], list[int]]) -> RowTable:
    """A unit's whole history as rows, with the recipe's columns."""
    cycles: Sequence[int | None] = [None] * unit.rows
    if unit.cycles is not None and unit.cycle_numbers is not None:
        cycles = np.repeat(unit.cycle_numbers, np.diff(unit.cycles)).tolist()
    ends = [False] * unit.rows
    sensors, settings = unit.sensors[:, columns[0]], unit.settings[:, columns[1]]
    return RowTable([unit.id] * unit.rows, unit.time.tolist(), cycles, ends, sensors, settings)


def read_head(path: str | Path, trust: Trust | None = None) -> tuple[FloatArray, FloatArray | None]:
    """A personal head (L + 1,), bias last, and what it says of kept-out machines (3, N); refuse anything else."""
    path = Path(path)
    try:
        content = path.read_bytes()
        if trust is not None:
            trust.check_file(content, path)
        tensors = load_tensors(content)
    except OSError as error:
        hint = "give the .safetensors file of the site's head"
        raise BundleError(f"cannot read the head: {error.strerror}", where=str(path), hint=hint) from None
    except SafetensorError as error:
        raise BundleError(f"not a head: {error}", where=str(path), hint="give the .safetensors file") from None
    head = tensors.get("head")
    if head is None or head.ndim != 1 or not np.isfinite(head).all():
        raise BundleError("not a head", where=str(path), hint="it holds one tensor 'head', bias last, all finite")
    kept_out = tensors.get(KEPT_OUT)
    if kept_out is not None and not (kept_out.ndim == 2 and len(kept_out) == 3 and np.isfinite(kept_out).all()):
        raise BundleError("not a head", where=str(path), hint=f"'{KEPT_OUT}' holds predictions, labels and units")
    return np.asarray(head, dtype=np.float64), kept_out


class _TorchWindows:
    """A network that looks at windows, on one thread."""

    def __init__(self, network: Network) -> None:
        self._module = network.module().eval()
        self._blocks = ExitStack()  # open as long as this object lives: its weights do not change
        self._blocks.enter_context(self._module.in_blocks())

    def look(self, windows: Rows) -> tuple[FloatArray, Rows]:
        """Standardised outputs (B,) of windows (B, window, channels), and what the head sees of them (B, features)."""
        from fedprognos.networks import window_outputs

        with one_torch_thread():  # windows are small: more threads cost more than they bring
            return window_outputs(self._module, windows)
