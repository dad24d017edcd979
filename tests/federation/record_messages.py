"""Records a message of every kind that has no recording yet; what is recorded is never written again.

python tests/federation/record_messages.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "federation")]

from every_message import KINDS, RECORDED, client_here, every_message, every_request  # noqa: E402

from fedprognos.federation.codec import encode  # noqa: E402


def main() -> None:
    """Ask a site everything and write what is new."""
    with tempfile.TemporaryDirectory() as folder:
        client = client_here(Path(folder))
        replies = [client.respond(encode(request)) for request in every_request()]
        found = every_message(replies)
    RECORDED.mkdir(exist_ok=True)
    for message in found:
        path = RECORDED / f"{type(message).__name__}.message"
        if not path.is_file():
            path.write_bytes(encode(message))
            sys.stdout.write(f"recorded {path.name}\n")
    missing = {kind.__name__ for kind in KINDS} - {path.stem for path in RECORDED.glob("*.message")}
    sys.exit(f"no message of {', '.join(sorted(missing))}: add one to every_message.py" if missing else 0)


if __name__ == "__main__":
    main()
