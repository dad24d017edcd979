"""`fedprognos export BUNDLE --onnx FILE`: the model for machines without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedprognos.cli.console import TrustFile, plain_console, read_trust


def export(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    onnx: Annotated[Path, typer.Option("--onnx", metavar="FILE", help="File to write.")],
    head: Annotated[Path | None, typer.Option("--head", help="A site's personal head (.safetensors).")] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="Keep recurrent weights in 8 bits; says what that changes.")
    ] = False,
    trust: TrustFile = None,
) -> None:
    """Write a model as one ONNX graph, from raw rows to health, for machines without torch.

    The graph is checked against torch before it is put in place. Needs the extra `edge`.

    Example: fedprognos export runs/fleet/bundle --onnx model.onnx
    """
    from fedprognos.prognosis import Predictor, export_onnx

    predictor = Predictor.load(bundle, head, read_trust(trust))
    done = export_onnx(predictor.bundle, onnx, int8=int8)
    console = plain_console()
    console.print(
        f"differs from torch by {done.worst:.1e} of the labels' spread at most, over {done.windows} windows",
        soft_wrap=True,
    )
    if done.int8_rms is not None:
        console.print(
            f"int8 changes {predictor.target} by {done.int8_rms:.3g} {predictor.target_measure} (root mean square), "
            f"{done.int8_worst:.3g} at most, over the same windows",
            soft_wrap=True,
            markup=False,
        )
    console.print(f"wrote {done.path} ({done.size_in_bytes / 1e3:.1f} kB)", markup=False, soft_wrap=True)
