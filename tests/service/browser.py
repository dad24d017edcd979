"""A real Chromium, driven through its DevTools protocol: real clicks, real keys, screenshots."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from websockets.sync.client import connect

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-quic "
    "--disable-background-networking --disable-component-update --disable-sync --disable-extensions "
    "--remote-debugging-port=0 --hide-scrollbars"
)
KEYS = {"Enter": (13, "\r"), "Tab": (9, "")}


class Browser:
    """One tab."""

    def __init__(self, profile: Path) -> None:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if chromium is None:
            pytest.skip("chromium is not installed")
        command = [chromium, *FLAGS.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._socket = connect(self._address(profile), max_size=None)
        except BaseException:
            self._process.kill()
            raise
        self._number = 0
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _address(self, profile: Path) -> str:
        file = profile / "DevToolsActivePort"
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if file.is_file() and len(file.read_text().splitlines()) == 2:
                port = file.read_text().splitlines()[0]
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                    tabs = json.load(answer)
                for tab in tabs:
                    if tab["type"] == "page":
                        return str(tab["webSocketDebuggerUrl"])
            time.sleep(0.05)
        raise TimeoutError("chromium did not start")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something; notes what the page complains about meanwhile."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(message["error"])
                result: dict[str, Any] = message["result"]
                return result
            if message.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(message["params"]["exceptionDetails"]))
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.complaints.append(message["params"]["entry"]["text"])

    def resize(self, width: int, height: int, phone: bool = False, dark: bool = False) -> None:
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "the script failed"))
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 15.0) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.run(f"(() => {{ try {{ return !!({script}); }} catch (e) {{ return false; }} }})()"):
                return
            time.sleep(0.05)
        text = self.run("document.body.innerText.slice(0, 800)")
        raise AssertionError(f"never true: {script}\n{text}\n{self.complaints}")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{found}.scrollIntoView({{block: 'center'}})")
        where = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({found}.getBoundingClientRect())")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1)

    def press(self, key: str) -> None:
        code, text = KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> Path:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
